"""What crosses between a worker and the processes that run its kinds' code: JSON messages, each after its length.

A task is a word and its fields; an answer is the fields of a value. JSON only: nothing is rebuilt by its class's name.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from thothy_ai.jobs import Call, Context, Early, End, Message, Output, Previous, Rejection, RejectionReason, Sampling
from thothy_ai.jobs.api.plan import Outputs
from thothy_ai.jobs.api.verdict import Finding, Review
from thothy_ai.plans.advance import Judgement, PlanError, PlannedJob, PlanStep
from thothy_ai.producer.drafts import Canonical

LENGTH = struct.Struct(">I")
Fields = dict[str, Any]


def encode(fields: Fields) -> bytes:
    """A message, with its length before it."""
    body = json.dumps(fields, separators=(",", ":")).encode()
    return LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Fields:
    """A message without its length."""
    fields: Fields = json.loads(body)
    return fields


def advance_task(job: PlannedJob, answered: Sequence[Outputs]) -> Fields:
    """The task to advance a plan."""
    return {
        "do": "advance",
        "kind": job.kind,
        "request": job.request,
        "context": asdict(job.context),
        "answered": [[_output(output) for output in outputs] for outputs in answered],
    }


def read_advance(task: Fields) -> tuple[PlannedJob, list[Outputs]]:
    """A job and the outputs so far, from the task."""
    previous = task["context"].pop("previous")
    context = Context(**task["context"], previous=_previous(previous) if previous else None)
    answered = [tuple(_read_output(*output) for output in outputs) for outputs in task["answered"]]
    return PlannedJob(task["kind"], task["request"], context), answered


def _output(output: Output) -> list[Any]:
    others = [_output(other) for other in output.others]
    return [output.text, output.end, output.mean_logprob, others, output.rejection]


def _read_output(
    text: str,
    end: str,
    mean_logprob: float | None,
    others: Sequence[Sequence[Any]],
    rejection: tuple[str, str] | None,
) -> Output:
    read = tuple(_read_output(*other) for other in others)
    return Output(text, End(end), mean_logprob, read, read_rejection(rejection))


def read_rejection(found: Sequence[str] | None) -> Rejection | None:
    """A rejection from its reason and detail."""
    return Rejection(RejectionReason(found[0]), found[1]) if found else None


def near_duplicate_task(kind: str, body: Any, others: Sequence[Any]) -> Fields:
    """The task to compare an artifact with others."""
    return {"do": "compare", "kind": kind, "body": body, "others": others}


def early_task(text: str, locale: str | None, early: Early | None) -> Fields:
    """The task to judge an unfinished output."""
    return {"do": "early", "text": text, "locale": locale, "early": early and asdict(early)}


def read_early(task: Fields) -> tuple[str, str | None, Early | None]:
    """An unfinished output, the language that it must have, and what else is to be looked for, from the task."""
    return task["text"], task["locale"], _read_early(task["early"])


def _read_early(fields: Fields | None) -> Early | None:
    """JSON's lists are tuples again, as the checks' caches need them."""
    if fields is None:
        return None
    made: Fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Early(**made)


def _previous(fields: Fields) -> Previous:
    return Previous(RejectionReason(fields["reason"]), fields["detail"], fields["artifact"])


def advanced(step: PlanStep | Judgement | PlanError) -> Fields:
    """The answer to `advance`."""
    match step:
        case PlanStep():
            return {"calls": [_call(call) for call in step.calls], "locale": step.locale, "version": step.version}
        case Judgement():
            return {"judgement": asdict(step)}
        case PlanError():
            return {"error": [step.reason, step.detail]}


def read_advanced(fields: Fields) -> PlanStep | Judgement:
    """The next step or the judgement, from the answer. Raises `PlanError`."""
    if "error" in fields:
        raise PlanError(*fields["error"])
    if "judgement" in fields:
        return _judgement(fields["judgement"])
    return PlanStep(tuple(map(_read_call, fields["calls"])), fields["locale"], fields["version"])


def _call(call: Call) -> Fields:
    return {
        "messages": call.messages,
        "schema": call.schema,
        "sampling": asdict(call.sampling),
        "step": call.step,
        "locale": call.locale,
        "template_options": call.template_options,
        "early": call.early and asdict(call.early),
    }


def _read_call(fields: Fields) -> Call:
    messages = tuple(Message(*message) for message in fields["messages"])
    sampling = Sampling(**fields["sampling"])
    early = _read_early(fields["early"])
    return Call(
        messages, fields["schema"], sampling, fields["step"], fields["locale"], fields["template_options"], early
    )


def _judgement(fields: Fields) -> Judgement:
    reason, review = fields["reason"], fields["review"]
    made = {
        "reason": RejectionReason(reason) if reason else None,
        "review": Review(tuple(Finding(*finding) for finding in review["findings"])) if review else None,
        "follow_ups": tuple(Canonical(**wanted) for wanted in fields["follow_ups"]),
        "signature": tuple(fields["signature"]),
    }
    return Judgement(**fields | made)
