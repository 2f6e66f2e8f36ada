"""Hooks by a small model: one call per hook, with a one-sentence task that gives its angle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from thothy_ai.jobs.kinds.hook.values import MAX_VARIANTS, Hook
from thothy_ai.jobs.plans import small_models
from thothy_ai.jobs.plans.parts import PartCall, PartFault, Values, Writing
from thothy_ai.jobs.prompts import mention
from thothy_ai.jobs.schema import object_schema

CHARS_PER_WORD = 8  # in a headline, to convert a channel's limit
TASKS: Final = (  # an angle, and the sentence that asks for it
    ("the news", "Summarize the text above for {audience} in one {tone} sentence."),
    ("the reason", "Explain to {audience} in one {tone} sentence why this is happening."),
    ("a question", "Ask {audience} one {tone} question that the text above answers."),
    ("the people", "Say in one {tone} sentence who in the text above does what."),
    ("what comes next", "Say to {audience} in one {tone} sentence what comes next."),
)


def write(writing: Writing[Hook]) -> Sequence[PartCall]:
    """One call per variant, each as a separate stage."""
    return [_piece(writing, number, number, again=False) for number in range(writing.request.variants)]


def rewrite(writing: Writing[Hook], values: Values, faults: Sequence[PartFault]) -> Sequence[PartCall]:
    """Use tasks that the first try did not use, while there are any: the same task soon yields the same text."""
    numbers = [int(part[1]) for part in dict.fromkeys(fault.part for fault in faults) if len(part) > 1]
    used = {variant["angle"] for variant in values.get("variants", ())}
    spare = [task for task in range(writing.request.variants, MAX_VARIANTS) if TASKS[task][0] not in used]
    tasks = dict(zip(numbers, spare, strict=False))
    return [_piece(writing, number, tasks.get(number, number), again=True) for number in numbers]


def _piece(writing: Writing[Hook], number: int, task_number: int, *, again: bool) -> PartCall:
    """The first is about a passage, so that a failure is cheap; the others share the source's KV."""
    request = writing.request
    shown = writing.source
    if again or number == 0:
        shown = " ".join(small_models.passage(writing.source, request.locale, number, request.variants))
    angle, task = TASKS[task_number]
    text = small_models.sentence(request.locale, 40, 120, shown)
    if not request.form.whole_sentences:
        task = "Write a headline for the text above." if task_number == 0 else task
        text = small_models.headline(request.locale, 3, request.room // CHARS_PER_WORD, shown)
    variant = object_schema({"text": text, "angle": {"const": angle}})
    asked = task.format(audience=request.audience, tone=request.tone) + mention(request)
    return small_models.piece(writing, asked, {("variants", number): variant}, again=again, stage=number, shown=shown)
