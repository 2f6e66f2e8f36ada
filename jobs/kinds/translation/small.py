"""The prompt of a small model, which makes nothing of a source: a sentence and the segment."""

from __future__ import annotations

from thothy_ai.jobs.api.plan import Context, Message
from thothy_ai.jobs.kinds.translation.inline import Masked
from thothy_ai.jobs.kinds.translation.task import Task
from thothy_ai.jobs.text.locales import locale_name


def segment_prompt(segment: Masked, _shown: str, task: Task, _context: Context) -> tuple[Message, ...]:
    """The prompt without what is shown to other models as the segment's source."""
    return (Message("user", f"Translate this passage into {locale_name(task.target)}:\n\n{segment.text}"),)
