"""An artifact as `thothy review` shows it: its fields, the findings at their places, the source, and past decisions.

No text can manipulate the terminal: control characters and overrides of the writing direction are replaced, text that
runs from right to left has lines of its own, and no line is wider than the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from thothy_ai.admin.durations import spell
from thothy_ai.admin.word_diff import word_diff
from thothy_ai.cli.views.tables import count, printable, runs_right_to_left, short_id, wrapped
from thothy_ai.cli.views.times import local
from thothy_ai.producer.decisions import leaves, meaning_checked

if TYPE_CHECKING:
    from thothy_ai.producer.decisions import CurrentVersion, FieldChange, PastDecision

EXCERPT_CHARS = 120  # of a source, on either side of a finding's passage
SOURCE_CHARS = 400  # of a source that no finding points to
Numbered = Sequence[tuple[int, Mapping[str, Any]]]


def version_lines(current: CurrentVersion, width: int | None) -> Iterator[str]:
    """Everything that a person needs for a decision, in lines of at most `width` columns; None: in whole paragraphs."""
    numbered = list(enumerate(current.findings, start=1))
    yield from _fitted(_title(current), width)
    for past in current.decisions:
        yield from _fitted(decision_line(past), width)
    if current.problem:
        yield from _fitted(f"A draft, which breaks the schema: {current.problem}", width)
    elif current.review == "needs_edit" and current.reason:
        yield from _fitted(f"A gate rejected it: {current.reason}: {current.detail or ''}".rstrip(": "), width)
    elif current.review == "superseded":
        yield from _fitted(f"Reopen it to decide: {current.detail}", width)
    if current.body is None:
        yield from _fitted(current.text or "There is no text.", width, "  ")
    headed: set[int] = set()  # findings on whole parts, already shown at the part's first heading
    for part, value in leaves(current.body or {}):
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        own = [(number, each) for number, each in numbered if each["part"] == part]
        wide = [
            number
            for number, each in numbered
            if each["part"] and f"{part}.".startswith(f"{each['part']}.") and number not in headed
            if each["part"] != part or not _within(shown, each["start"], each["end"])
        ]
        headed.update(wide)
        yield from _fitted(" ".join([f"{part}:", *(f"[{number}]" for number in wide)]), width)
        yield from _fitted(marked(shown, own), width, "  ")
    if current.edited_by:
        yield from change_lines(current.changes, width)
    yield ""
    yield from _fitted(meaning_checked(current.verification), width)
    yield from finding_lines(numbered, current.source, current.locale or "", width)


def change_lines(changes: Sequence[FieldChange], width: int | None) -> Iterator[str]:
    """People's changes to the model's text, word by word."""
    if changes:
        yield f"Changed: {count(len(changes), 'field')}"
    for change in changes:
        before, after = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) if value is not None else ""
            for value in (change.before, change.after)
        )
        yield from _labelled(f"{change.part}:", word_changes(before, after), width, "  ")


def word_changes(before: str, after: str) -> str:
    """The text with removed `[-words-]` and added `{+words+}`, as in `git diff --word-diff`."""
    marks = {"same": "{}", "gone": "[-{}-]", "came": "{{+{}+}}"}
    return "".join(marks[each.what].format(each.text) for each in word_diff(before, after))


def finding_lines(numbered: Numbered, source: str, locale: str, width: int | None) -> Iterator[str]:
    """Each finding with the passage of the source that it points to; without one, the beginning of the source."""
    from thothy_ai.jobs.checks.gates import measure

    excerpts = False
    for number, finding in numbered:
        by = "the model, " if finding["by"] == "verification" else ""
        where = f" in {finding['part']}" if finding["part"] else ""
        said = f"[{number}] {finding['reason']} ({by}{measure(finding, locale)}){where}: {finding['detail']}"
        yield from _fitted(said, width)
        if shown := excerpt(source, finding["source_start"], finding["source_end"]):
            excerpts = True
            yield from _labelled("source:", shown, width, "    ")
    if source and not excerpts:
        shown = source if len(source) <= SOURCE_CHARS else source[:SOURCE_CHARS].rsplit(None, 1)[0] + " …"
        yield from _labelled("Source:", " ".join(shown.split()), width)


def marked(text: str, numbered: Numbered) -> str:
    """The text with `[1: …]` around the place of each finding, and `[1,2: …]` around a place with several findings.

    A place outside the text is not marked.
    """
    spans: dict[tuple[int, int], list[str]] = {}
    for number, finding in numbered:
        start, end = finding["start"], finding["end"]
        if _within(text, start, end):
            spans.setdefault((start, end), []).append(str(number))
    marks = []
    for (start, end), numbers in spans.items():
        marks += [(end, 0, "]"), (start, 1, f"[{','.join(numbers)}: ")]
    for place, _, mark in sorted(marks, reverse=True):
        text = text[:place] + mark + text[place:]
    return text


def excerpt(source: str, start: Any, end: Any) -> str:
    """These characters of the source in quotation marks, with some on either side; empty if they are not in it."""
    if not _within(source, start, end):
        return ""
    before, after = source[max(0, start - EXCERPT_CHARS) : start], source[end : end + EXCERPT_CHARS]
    if start > EXCERPT_CHARS:
        before = "… " + before.partition(" ")[2]
    if end + EXCERPT_CHARS < len(source):
        after = after.rpartition(" ")[0] + " …"
    return " ".join(f"{before}[{source[start:end]}]{after}".split())


def decision_line(past: PastDecision) -> str:
    """A past decision in one line: who decided what, and when."""
    note = f": {past.note}" if past.note else ""
    return (
        f"Version {past.version}: {past.action.replace('_', ' ')} by {past.decided_by}, {local(past.decided_at)}{note}"
    )


def _title(current: CurrentVersion) -> str:
    review = (current.review or current.state).replace("_", " ")
    due = ""
    if current.deadline is not None:
        left = (current.deadline - datetime.now(UTC)).total_seconds()
        due = f", due in {spell(left)}" if left > 0 else f", {spell(-left)} late"
    of = f"{current.kind} {current.locale}" if current.locale else current.kind
    return f"── {of}, job {short_id(current.job_id)}, version {current.version}: {review}{due}"


def _within(text: str, start: Any, end: Any) -> bool:
    return isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text)


def _labelled(label: str, text: str, width: int | None, indent: str = "") -> Iterator[str]:
    """A text after its label, or below the label if the text runs from right to left."""
    if runs_right_to_left(text):
        yield from _fitted(label, width, indent)
        yield from _fitted(text, width, f"{indent}  ")
    else:
        yield from _fitted(f"{label} {text}", width, indent)


def _fitted(text: str, width: int | None, indent: str = "") -> Iterator[str]:
    """The text in lines that fit. A word that does not fit, such as a Chinese sentence, is broken."""
    from rich.cells import chop_cells

    room = None if width is None else max(20, width - len(indent))
    for line in printable(text).expandtabs(4).splitlines() or [""]:
        for piece in wrapped(line, room):
            for shown in chop_cells(piece, room) if room is not None else [piece]:
                yield f"{indent}{shown}".rstrip()
