"""The summary of a report, written after its sections."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.plan import Call, Calls, Context, End, Outputs, Sampling
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Rejection
from thothy_ai.jobs.checks.gates import is_gate
from thothy_ai.jobs.kinds.report.faults import early_prose, prose_faults
from thothy_ai.jobs.kinds.report.values import MAX_SENTENCE_CHARS, Section
from thothy_ai.jobs.kinds.report.verifying import Stated, Verified, verified
from thothy_ai.jobs.kinds.report.writer import Writer
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.budget import max_tokens
from thothy_ai.jobs.plans.documents import RESERVE, condensed, shorter
from thothy_ai.jobs.plans.judging import judgement, severity, worst
from thothy_ai.jobs.plans.outputs import parse
from thothy_ai.jobs.prompts import about_source
from thothy_ai.jobs.schema import grammar_schema, sentences
from thothy_ai.jobs.text.division import estimated_tokens

MAX_SENTENCES = 4
MAX_WORDS = 200
MAX_SHORTENINGS = 4  # of a refused prompt
MAX_SHARE_OF_SECTIONS = 0.25  # of the context


class _Summary(Artifact):
    summary: Annotated[str, sentences(1, MAX_SENTENCES, MAX_SENTENCE_CHARS)]


class Summarized(NamedTuple):
    """A summary (empty if unreadable), its faults and doubts, and verification results."""

    text: str
    rejection: Rejection | None
    verified: Verified = Verified()


def summarized(
    sections: Sequence[Section], text: str, request: WritingRequest[Any], context: Context, writer: Writer
) -> Generator[Calls, Outputs, Summarized]:
    """Summarize the sections of a report about a text, and once more if there are faults or doubts."""
    done, severest, locale = Summarized("", None), (0, 0.0), request.locale
    room, schema = context, grammar_schema(_Summary)
    for step in ("summary", "repair"):
        for _ in range(MAX_SHORTENINGS):
            shown = text if room is context else (yield from condensed(text, room, 2 * RESERVE))
            instruction = writer.summary_instruction(_shortened(sections, room), request)
            call = Call(
                about_source(shown, instruction, context),
                schema,
                Sampling(max_tokens=max_tokens(schema, request.locale, context), temperature=0.4, top_p=0.9),
                step=step,
                locale=request.locale,
                early=early_prose(("summary",), shown, request, MAX_WORDS),
            )
            (output,) = yield (retries.adapted(call, context, request.locale),)
            if output.end is not End.PROMPT_TOO_LONG:
                break
            room = shorter(room)
        found = parse(_Summary, output)
        written = "" if isinstance(found, Rejection) else found.summary
        faults = (found,) if isinstance(found, Rejection) else summary_faults(written, tuple(sections), text, request)
        first, of_text = worst(faults, locale), Verified()
        gate = first if first and is_gate(first.reason, locale) else None
        if written and gate is None:
            stated = {0: Stated("summary", written)}
            of_text = (yield from verified(stated, text, request, context)).get(0, Verified())
        doubts = sum(doubt.weight for doubt in of_text.doubts)
        severe = severity(faults, locale)[0], severity(faults, locale)[1] + doubts
        if not done.text or severe <= severest:
            done, severest = Summarized(written or done.text, gate, of_text), severe
        again = first or next((Rejection(doubt.reason, doubt.detail) for doubt in of_text.doubts), None)
        if again is None:
            break
        context = retries.after(context, again)
    return done


def _shortened(sections: Sequence[Section], context: Context) -> Sequence[Section]:
    """The first sentences of each section, as many as fit a share of the context."""
    room = context.max_context * MAX_SHARE_OF_SECTIONS / max(len(sections), 1)
    shortened = []
    for section in sections:
        every = checks.sentences(section.body)
        kept = list(every)
        while len(kept) > 1 and estimated_tokens(" ".join(kept)) > room:
            kept.pop()
        body = " ".join(kept) if len(kept) < len(every) else section.body
        shortened.append(section.model_copy(update={"body": body}))
    return shortened


@judgement(kept=64)
def summary_faults(
    summary: str, sections: tuple[Section, ...], text: str, request: WritingRequest[Any]
) -> Iterator[Rejection | None]:
    """Faults and doubts of the summary of a report about a text. The summary must mention what the sections
    leave out.
    """
    too_long = checks.length("summary", summary, request.locale, 8, MAX_WORDS)
    whole = " ".join([summary, *(f"{section.heading} {section.body}" for section in sections)])
    unmentioned = checks.mentions(whole, request.must_mention, request.locale)
    for found in (too_long, unmentioned, *prose_faults("summary", summary, text, request)):
        yield found and found.at("summary")
