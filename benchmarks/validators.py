"""Measures the validators on the labelled texts, and writes what is measured to where it is used.

    python -m benchmarks.validators [FOLDER] [--wrong] [--corrupt] [--write]

Prints what gates reject, and what they and findings see together, per kind and per language group, by split of the
texts: the `seen` ones, which the validators may be tuned on, and the `unseen` ones, which only measure. `--wrong` lists
good texts that a gate rejects and bad ones in which nothing is found, and the ids of those unseen. `--corrupt` adds a
table of the faults that are put into good texts by rule. `--write` puts the tables into docs/validators.md, and the
counts per reason and language group into jobs/checks/tables/gates.toml, where they become the findings' weights. The
figures by sort of defect are recorded in RESULTS.md, too.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.corruption import CORRUPTIONS, corrupted
from benchmarks.results import record
from thothy_ai.evaluation.validators import MEANING, Counts, JudgedText, by_group, by_sort, judge, precision_counts
from thothy_ai.jobs.api.verdict import RejectionReason
from thothy_ai.jobs.evaluation.labelled import load

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "data" / "labelled"
PAGE = ROOT / "docs" / "validators.md"
GATES = ROOT / "jobs" / "checks" / "tables" / "gates.toml"
BEGIN_CORRUPT = "<!-- figures: python -m benchmarks.validators --corrupt --write -->"
BEGIN, END = "<!-- figures: python -m benchmarks.validators --write -->", "<!-- end of figures -->"
UNSEEN = "unseen"
SHOWN_FIRST = (MEANING, "form", "language", "names", "quotations")
_COUNTS = re.compile(r'^(?:\w+|"[\w ]+") = \[\d+, \d+\]\n', re.MULTILINE)


def tables(judged: Sequence[JudgedText]) -> str:
    """The figures as Markdown tables: per kind, per language group and per sort of defect, the unseen texts apart."""
    parts = [[each for each in judged if (each.text.split == UNSEEN) is unseen] for unseen in (False, True)]
    splits = [(name, part) for name, part in zip(("seen", UNSEEN), parts, strict=True) if part]
    kinds = list(dict.fromkeys(each.text.kind for each in judged))
    per_kind = {
        name: {kind: Counts.of(each for each in part if each.text.kind == kind) for kind in kinds}
        | {"all": Counts.of(part)}
        for name, part in splits
    }
    return "\n\n".join(
        (
            _table("kind", per_kind),
            _table("language group", {name: by_group(part) for name, part in splits}),
            _table("bad texts, by defect", {name: by_sort(part) for name, part in splits}, of_good=False),
        )
    )


def _table(title: str, splits: Mapping[str, Mapping[str, Counts]], *, of_good: bool = True) -> str:
    head = [title]
    for name in splits:
        head += [f"{name}: good rejected", "good in doubt"] if of_good else []
        head += [f"{name}: bad rejected", "bad rejected or in doubt"]
    rows = list(dict.fromkeys(row for counts in splits.values() for row in counts))
    body = [
        [row, *(cell for counts in splits.values() for cell in _cells(counts.get(row), of_good=of_good))]
        for row in rows
    ]
    return _lines(head, body)


def _cells(counts: Counts | None, *, of_good: bool) -> list[str]:
    c = counts or Counts(0, 0, 0, 0, 0, 0)
    good = [_rate(c.good_rejected, c.good), _rate(c.good_found - c.good_rejected, c.good)] if of_good else []
    return [*good, _rate(c.bad_rejected, c.bad), _rate(c.bad_found, c.bad)]


def _lines(head: list[str], body: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def found_by_corruption(judged: Sequence[JudgedText]) -> str:
    """How many faulty versions of the good texts in which nothing is found are found, as a Markdown table."""
    sound = [each.text for each in judged if each.text.accepted and not each.found]
    results: dict[str, list[JudgedText]] = {name: [] for name in CORRUPTIONS}
    for bad in corrupted(sound):
        results[bad.name].append(judge(bad.text))
    body = [
        [name, _rate(sum(bool(each.found) for each in bad), len(bad)), _named(bad)] for name, bad in results.items()
    ]
    return _lines(["fault", "found", "most frequent reasons"], body)


def _named(judged: Iterable[JudgedText]) -> str:
    reasons = Counter(str(each.found[0].reason) for each in judged if each.found)
    return ", ".join(f"`{reason}` {count}" for reason, count in reasons.most_common(2))


def _rate(count: int, total: int) -> str:
    return f"{count} of {total} ({count / total:.1%})" if total else "–"


def wrong(judged: Iterable[JudgedText]) -> Iterator[str]:
    """One line per good text that a gate rejects, and per bad one in which nothing is found; of unseen ones, ids."""
    for each in judged:
        missed = not each.text.accepted and not each.found and each.sort != MEANING
        if not (missed or (each.text.accepted and each.gate)):
            continue
        kind = "missed" if missed else "rejected"
        if each.text.split == UNSEEN:
            yield f"{each.text.id}: {kind}, unseen"
        elif each.gate and not missed:
            yield f"{each.text.id}: {kind}: {each.gate.reason}: {each.gate.detail}"
        else:
            yield f"{each.text.id}: {kind}: should be {', '.join(sorted(each.text.reasons))}: {each.text.note}"


def written(page: str, figures: str, begin: str = BEGIN) -> str:
    """The page with these figures in the place of its own, which stand between `begin` and the next end."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{figures}\n\n{END}{rest.partition(END)[2]}"


def declared(table: str, judged: Iterable[JudgedText]) -> str:
    """The text of gates.toml with these counts in the place of its own; what is a gate stays."""
    counts = precision_counts(judged)
    entries = []
    for entry in _COUNTS.sub("", table).split("\n\n"):
        reason = re.search(r"^\[(\w+)\]$", entry, re.MULTILINE)
        groups = counts.get(RejectionReason(reason[1]), {}) if reason else {}
        quoted = {name: name if name.isalpha() else f'"{name}"' for name in sorted(groups)}
        lines = (f"{key} = [{groups[name][0]}, {groups[name][1]}]" for name, key in quoted.items())
        entries.append("\n".join([entry.rstrip("\n"), *lines]))
    return "\n\n".join(entries) + "\n"


def summary(judged: Sequence[JudgedText]) -> list[tuple[str, str, str]]:
    """What is recorded: the language group with most good texts rejected, and what is found by sort of defect."""
    groups, sorts = by_group(judged), by_sort(judged)
    name, worst = max(groups.items(), key=lambda item: item[1].good_rejected / (item[1].good or 1))
    return [
        (f"good texts rejected by gates, most of a group ({name})", _rate(worst.good_rejected, worst.good), "1 %"),
        *(
            (f"bad texts, {sort}: by gates; with findings", f"{c.bad_rejected}; {c.bad_found} of {c.bad}", "")
            for sort, c in sorted(sorts.items(), key=lambda item: item[0] not in SHOWN_FIRST)
        ),
    ]


def main() -> None:
    """Run the command. Exits with 2 if there are no texts, or if one breaks the format."""
    parser = argparse.ArgumentParser(description="Measure the validators on labelled texts.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--wrong", action="store_true", help="list what is judged wrongly")
    parser.add_argument("--corrupt", action="store_true", help="put faults into good texts, and count what is found")
    parser.add_argument("--write", action="store_true", help="put tables into the page, and counts into gates.toml")
    options = parser.parse_args()
    try:
        texts = load(options.folder)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    judged = list(map(judge, texts))
    figures = tables(judged)
    print(figures)
    faults = found_by_corruption(judged) if options.corrupt else ""
    print(f"\n{faults}" if faults else "", end="\n" if faults else "")
    if options.wrong:
        print("", *wrong(judged), sep="\n")
    if options.write:
        page = written(PAGE.read_text(encoding="utf-8"), figures)
        PAGE.write_text(written(page, faults, BEGIN_CORRUPT) if faults else page, encoding="utf-8")
        GATES.write_text(declared(GATES.read_text(encoding="utf-8"), judged), encoding="utf-8")
        record("Validators on labelled texts", "Accuracy", "python -m benchmarks.validators --write", summary(judged))


if __name__ == "__main__":
    main()
