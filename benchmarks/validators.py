"""Measures the validators on the labelled texts: good ones that they reject, and bad ones that they accept.

    python -m benchmarks.validators [FOLDER] [--wrong] [--corrupt] [--write]

Prints a table per kind and one per language group, by split of the texts: `tuned`, `held_out`, `fresh` and
`development`, which the validators may be tuned on, and `unseen`, which only measures. `--wrong` lists the texts that
are judged wrongly, with what was found, and the ids of those unseen. `--corrupt` adds a table of the faults that are
put into good texts by rule. `--write` puts the tables into docs/validators.md. Bad texts that are labelled
`unsupported`, too, whose defect is one of meaning, are counted apart: verification by a model may find them as well.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from benchmarks.corruption import CORRUPTIONS, corrupted
from benchmarks.labelled import FOLDER, SPLITS, LabelledText, load
from thothy_ai.jobs import registry
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason

PAGE = Path(__file__).parents[1] / "docs" / "validators.md"
BEGIN_CORRUPT = "<!-- figures: python -m benchmarks.validators --corrupt --write -->"
BEGIN, END = "<!-- figures: python -m benchmarks.validators --write -->", "<!-- end of figures -->"
_GROUPS = {
    "en": "English",
    "zh": "Chinese and Japanese",
    "ja": "Chinese and Japanese",
    "ko": "Korean",
    "ar": "Arabic",
    "hi": "Hindi",
    "ru": "Russian",
}
_OTHER = "other Latin script"


@dataclass(frozen=True, slots=True)
class Judged:
    """A labelled text, and what the validators found."""

    text: LabelledText
    found: Rejection | None

    @property
    def false_reject(self) -> bool:
        """Whether a good text was rejected."""
        return self.text.accepted and self.found is not None

    @property
    def needs_meaning(self) -> bool:
        """Whether a bad text is labelled `unsupported`, too: a validator or verification by a model may find it out."""
        return RejectionReason.UNSUPPORTED in self.text.reasons

    @property
    def false_accept(self) -> bool:
        """Whether a bad text was accepted that a validator must find out."""
        return not self.text.accepted and self.found is None and not self.needs_meaning

    @property
    def left_to_verification(self) -> bool:
        """Whether a bad text was accepted that verification must find out."""
        return self.found is None and self.needs_meaning

    @property
    def other_reason(self) -> bool:
        """Whether a bad text was rejected for a reason that it was not labelled with."""
        return not self.text.accepted and self.found is not None and self.found.reason not in self.text.reasons


def judge(text: LabelledText) -> Judged:
    """Apply the checks of the text's kind to its artifact."""
    kind = registry.find(text.kind)
    request = kind.request.model_validate(dict(text.request))
    try:
        artifact = kind.artifact.model_validate(dict(text.artifact))
    except ValidationError as error:
        return Judged(text, Rejection(RejectionReason.OFF_SCHEMA, str(error.errors(include_url=False)[0]["msg"])))
    checks: Callable[..., Iterable[Rejection | None]] = kind.plan.checks  # type: ignore[attr-defined]
    return Judged(text, next(filter(None, checks(request, artifact)), None))


def group_of(language: str) -> str:
    """The language group that a language is counted in."""
    return _GROUPS.get(language, _OTHER)


def tables(judged: Sequence[Judged]) -> str:
    """The figures as two Markdown tables: per kind and per language group, by split."""
    kinds = list(dict.fromkeys(each.text.kind for each in judged))
    groups = sorted({group_of(each.text.language) for each in judged})
    per_kind = [(kind, [each for each in judged if each.text.kind == kind]) for kind in kinds]
    per_group = [(group, [each for each in judged if group_of(each.text.language) == group]) for group in groups]
    return "\n\n".join((_table("kind", [*per_kind, ("all", list(judged))]), _table("language group", per_group)))


def _table(title: str, rows: Sequence[tuple[str, list[Judged]]]) -> str:
    splits = [split for split in SPLITS if any(each.text.split == split for _, judged in rows for each in judged)]
    head = [
        title,
        *(f"{split.replace('_', ' ')}: {name}" for split in splits for name in ("false accepts", "false rejects")),
    ]
    body = [
        [name, *(cell for split in splits for cell in _rates([each for each in judged if each.text.split == split]))]
        for name, judged in rows
    ]
    return _lines(head, body)


def _lines(head: list[str], body: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def _rates(judged: Sequence[Judged]) -> tuple[str, str]:
    bad = [each for each in judged if not each.text.accepted and not each.needs_meaning]
    good = [each for each in judged if each.text.accepted]
    return _rate(sum(each.false_accept for each in bad), len(bad)), _rate(
        sum(each.false_reject for each in good), len(good)
    )


def found_by_corruption(judged: Sequence[Judged]) -> str:
    """How many faulty versions of the good texts that are accepted are found, as a Markdown table."""
    accepted = [each.text for each in judged if each.text.accepted and each.found is None]
    results: dict[str, list[Judged]] = {name: [] for name in CORRUPTIONS}
    for bad in corrupted(accepted):
        results[bad.name].append(judge(bad.text))
    body = [
        [name, _rate(sum(each.found is not None for each in bad), len(bad)), _named(bad)]
        for name, bad in results.items()
    ]
    return _lines(["fault", "found", "most frequent reasons"], body)


def _named(judged: Iterable[Judged]) -> str:
    reasons = Counter(str(each.found.reason) for each in judged if each.found)
    return ", ".join(f"`{reason}` {count}" for reason, count in reasons.most_common(2))


def _rate(count: int, total: int) -> str:
    return f"{count} of {total} ({count / total:.1%})" if total else "–"


def notes(judged: Sequence[Judged]) -> str:
    """What the tables leave out, in sentences."""
    other = sum(each.other_reason for each in judged)
    splits = [split for split in SPLITS if any(each.text.split == split for each in judged)]
    parts = {split: [each for each in judged if each.needs_meaning and each.text.split == split] for split in splits}
    found = ", ".join(
        f"{sum(each.found is not None for each in part)} of {len(part)} in `{split}`" for split, part in parts.items()
    )
    return (
        f"{len(judged)} texts. Those that are labelled `unsupported`, too, are in no column: their defect is one of"
        f" meaning, which verification is for. The validators find {found}."
        f" Of all bad texts that they reject, {other} are rejected for a reason that is not among their labels."
    )


def wrong(judged: Iterable[Judged]) -> Iterator[str]:
    """One line per text that is judged wrongly; of an unseen one, its id only."""
    for each in judged:
        if not (each.false_accept or each.false_reject):
            continue
        kind = "false accept" if each.false_accept else "false reject"
        if each.text.split == "unseen":
            yield f"{each.text.id}: {kind}, unseen"
        elif each.found:
            yield f"{each.text.id}: {kind}: {each.found.reason}: {each.found.detail}"
        else:
            yield f"{each.text.id}: {kind}: should be {', '.join(sorted(each.text.reasons))}: {each.text.note}"


def written(page: str, figures: str, begin: str = BEGIN) -> str:
    """The page with these figures in the place of its own, which stand between `begin` and the next end."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{figures}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Run the command. Exits with 2 if there are no texts, or if one breaks the format."""
    parser = argparse.ArgumentParser(description="Measure the validators on labelled texts.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--wrong", action="store_true", help="list what is judged wrongly")
    parser.add_argument("--corrupt", action="store_true", help="put faults into good texts, and count what is found")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/validators.md")
    options = parser.parse_args()
    try:
        texts = load(options.folder)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    judged = list(map(judge, texts))
    figures = f"{tables(judged)}\n\n{notes(judged)}"
    print(figures)
    faults = found_by_corruption(judged) if options.corrupt else ""
    print(f"\n{faults}" if faults else "", end="\n" if faults else "")
    if options.wrong:
        print("", *wrong(judged), sep="\n")
    if options.write:
        page = written(PAGE.read_text(encoding="utf-8"), figures)
        PAGE.write_text(written(page, faults, BEGIN_CORRUPT) if faults else page, encoding="utf-8")


if __name__ == "__main__":
    main()
