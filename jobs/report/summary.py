"""The summary of a report, written after its sections."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Annotated, Any

from thothy_ai.jobs import checks
from thothy_ai.jobs.division import tokens_for
from thothy_ai.jobs.kind import Artifact
from thothy_ai.jobs.one_call import parse
from thothy_ai.jobs.plan import Call, Calls, Context, Outputs, Sampling
from thothy_ai.jobs.prompts import about_source, in_language, style
from thothy_ai.jobs.report.section import MAX_SENTENCE_CHARS, Section, prose_faults
from thothy_ai.jobs.requests import WritingRequest
from thothy_ai.jobs.schema import grammar_schema, sentences
from thothy_ai.jobs.verdict import Rejection

MAX_SENTENCES = 4


class _Summary(Artifact):
    summary: Annotated[str, sentences(1, MAX_SENTENCES, MAX_SENTENCE_CHARS)]


def summarized(
    sections: Sequence[Section], text: str, request: WritingRequest[Any], context: Context
) -> Generator[Calls, Outputs, tuple[str, Rejection | None]]:
    """Summarize the sections, once more if something is wrong. Returns an empty summary if none could be read."""
    summary, remark = "", ""
    rejection: Rejection | None = None
    for _ in ("write", "repair"):
        (output,) = yield (_call(sections, text, request, context, remark),)
        draft = parse(_Summary, output)
        if isinstance(draft, Rejection):
            rejection = draft
        else:
            summary, rejection = draft.summary, summary_fault(draft.summary, text, request)
        if rejection is None:
            break
        remark = rejection.detail
    return summary, rejection


def summary_fault(summary: str, text: str, request: WritingRequest[Any]) -> Rejection | None:
    """What is wrong with the summary of a report about a text."""
    too_long = checks.length("summary", summary, request.locale, 8, 200)
    return too_long or next(filter(None, prose_faults("summary", summary, text, request)), None)


def _call(sections: Sequence[Section], text: str, request: WritingRequest[Any], context: Context, remark: str) -> Call:
    budget = tokens_for(MAX_SENTENCES * (MAX_SENTENCE_CHARS + 2) + 20, request.locale)
    return Call(
        about_source(text, _instruction(sections, request, context, remark), context),
        grammar_schema(_Summary),
        Sampling(max_tokens=min(budget, context.max_context // 2), temperature=0.6 if remark else 0.4, top_p=0.9),
        step="repair" if remark else "summary",
        locale=request.locale,
    )


def _instruction(sections: Sequence[Section], request: WritingRequest[Any], context: Context, remark: str) -> str:
    if context.plain:
        return f"Summarize the text above for {request.audience} in two sentences.{in_language(request.locale)}"
    again = f" An earlier summary was rejected, since {remark}. See to it that yours is not." if remark else ""
    report = "\n\n".join(f"{section.heading}\n{section.body}" for section in sections)
    return (
        f"Below is a report about the source. Write the summary that stands at its top, for {request.audience}: two to"
        f" four sentences with the most important findings, in your own words.{again}{style(request)}\n\n"
        f"<report>\n{report}\n</report>"
    )
