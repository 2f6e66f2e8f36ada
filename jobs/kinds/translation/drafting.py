"""The sub-plan that translates segments side by side, and repairs each faulty one once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from thothy_ai.jobs.api.plan import Calls, Context, End, Outputs
from thothy_ai.jobs.api.verdict import Rejection
from thothy_ai.jobs.checks.gates import is_gate
from thothy_ai.jobs.kinds.translation.calls import Prompt, segment_call, translated
from thothy_ai.jobs.kinds.translation.faults import faults
from thothy_ai.jobs.kinds.translation.inline import masked
from thothy_ai.jobs.kinds.translation.task import Task
from thothy_ai.jobs.kinds.translation.units import Document, joint
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.documents import batches, room_for_source
from thothy_ai.jobs.plans.judging import worst
from thothy_ai.jobs.text.division import divide, estimated_tokens

SEGMENT_TOKENS = 300
NEIGHBOURS_TOKENS = (800, 150, 0)  # of context around a segment, one try each, if the source is too long

Shown = Callable[[str], str]  # the source to show in a segment's prompt


class SegmentDraft(NamedTuple):
    """A segment's translation, or the segment itself if there is none, with its faults and doubts."""

    text: str
    rejection: Rejection | None

    def rejected(self, locale: str) -> bool:
        """Whether a gate for this locale rejects it."""
        return self.rejection is not None and is_gate(self.rejection.reason, locale)


Drafts = dict[str, SegmentDraft]
Drafting = Generator[Calls, Outputs, Drafts]


@lru_cache(maxsize=4096)
def segments_of(text: str) -> tuple[str, ...]:
    """A unit's text as segments of whole sentences."""
    return tuple(part.strip() for part in divide(text, SEGMENT_TOKENS) if part.strip())


def joined(texts: Iterable[str]) -> str:
    """Translated segments as one text."""
    whole = ""
    for text in texts:
        whole += joint(whole[-1:], text[:1]) + text if whole else text
    return whole


def drafted(segments: Sequence[str], document: Document, task: Task, context: Context, prompt: Prompt) -> Drafting:
    """Translate segments of a document. Each prompt shows the source or, if that does not fit, the segment's
    surroundings.
    """
    drafts: Drafts = {}

    def take(batch: Sequence[str], outputs: Outputs) -> None:
        for segment, output in zip(batch, outputs, strict=True):
            text = translated(masked(segment), output)
            failed = isinstance(text, Rejection)
            rejection = text if isinstance(text, Rejection) else worst(faults(text, segment, task), task.target)
            last = drafts.get(segment)
            if rejection and last and not last.rejected(task.target):
                continue  # a doubtful translation is better than a rejected one
            drafts[segment] = SegmentDraft(segment if failed else str(text), rejection)

    waiting = list(segments)
    fits = estimated_tokens(task.source) <= room_for_source(context) - 2 * SEGMENT_TOKENS
    around = (_around(document, tokens) for tokens in NEIGHBOURS_TOKENS)
    for shown in chain([lambda _: task.source] if fits else [], around):
        refused: list[str] = []
        for batch in batches(waiting):
            outputs = yield tuple(segment_call(masked(each), shown(each), task, context, prompt) for each in batch)
            refused += [each for each, output in zip(batch, outputs, strict=True) if output.end is End.PROMPT_TOO_LONG]
            take(batch, outputs)
        bad = [segment for segment in waiting if drafts[segment].rejection and segment not in set(refused)]
        for batch in batches(bad):
            calls = []
            for segment in batch:
                rejection = drafts[segment].rejection
                after = retries.after(context, rejection) if rejection else context
                calls.append(replace(segment_call(masked(segment), shown(segment), task, after, prompt), step="repair"))
            outputs = yield tuple(calls)
            take(batch, outputs)
        waiting = refused
        if not waiting:
            break
    return drafts


def _around(document: Document, tokens: int) -> Shown:
    """Shows a segment's unit and its neighbours, up to `tokens` on each side, and the document's first line."""
    texts = [unit.text for unit in document.units]
    places = {segment: place for place, text in reversed(list(enumerate(texts))) for segment in segments_of(text)}

    def shown(segment: str) -> str:
        place = places[segment]
        before = _within(reversed(texts[:place]), tokens)[::-1]
        after = _within(texts[place + 1 :], tokens)
        title = [] if len(before) == place else texts[:1]
        unit = texts[place] if estimated_tokens(texts[place]) <= SEGMENT_TOKENS + tokens else segment
        return "\n\n".join([*title, *before, unit, *after])

    return shown


def _within(texts: Iterable[str], tokens: float) -> list[str]:
    found: list[str] = []
    for text in texts:
        tokens -= estimated_tokens(text)
        if tokens < 0:
            break
        found.append(text)
    return found
