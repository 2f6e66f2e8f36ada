"""A plan: what a job asks of the engine, call by call, until there is a verdict.

A plan is a generator. It yields calls, which run side by side, gets their outputs in the same order, and returns the
verdict. Most kinds need one call (`OneCall`); others divide a long source, repair a part, or have the result verified.
A plan is pure: the same request, context and outputs give the same calls, so that it can run anywhere and be replayed.

    worker                                   plan
    next(plan)                        ──▶    yield (Call, Call)
    plan.send((Output, Output))       ──▶    yield (Call,)
    plan.send((Output,))              ──▶    return Verdict
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason, Verdict

MAX_STEPS = 100  # per plan: each step replays the plan from its start; a worker ends a longer one
TemplateOption = str | int | float | bool | None

PLAIN_PARAMETERS = 1_000_000_000  # a model below this size follows short, plain instructions better than detailed ones


class Message(NamedTuple):
    """One chat message. `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """Output budget in tokens, and sampling parameters. `temperature` 0 is greedy, so that every retry is identical.

    The repetition penalty counts tokens of prompt and output; frequency and presence penalties count the output's only.
    An output has `n` texts: the best of `best_of` by mean log-probability, which is returned if `mean_logprob` is set.
    """

    max_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    min_tokens: int = 0
    n: int = 1
    best_of: int | None = None  # None: as many as `n`
    mean_logprob: bool = False


@dataclass(frozen=True, slots=True)
class Early:
    """Which checks can tell, while an output is being written, that it will be rejected.

    `checks` are names from `jobs/early.py`. They judge the strings under the keys `fields`, at any depth of the output:
    one by one or, if `joined`, as the paragraphs of one text. Name only checks whose rejection discards the whole
    output: where the plan would repair or drop a part, it needs the rest. The other fields are what the checks compare
    with.
    """

    fields: tuple[str, ...]
    checks: tuple[str, ...]
    source: str = ""
    locale: str = "en"
    joined: bool = False
    allowed: tuple[str, ...] = ()  # names
    banned: tuple[str, ...] = ()  # phrases
    instruction: str = ""
    max_words: int = 0


@dataclass(frozen=True, slots=True)
class ApiBody:
    """The body of a request to a route of OpenAI's API, such as `/v1/chat/completions`."""

    route: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One generation. `schema` is the JSON schema that its output matches; `step` is its plan step, such as `write`,
    `repair` or `verify`. `locale` is the language that its text must have, checked early; None: any. `template_options`
    are variables of the model's chat template; unknown ones are ignored. `early` names the checks that end an output
    once it is certain to be rejected. `api` replaces the first three fields by the body of an API request, and the
    output then has an `answer`. `pairs`, of a premise and a claim each, go to the entailment model next to the engine,
    which answers with a JSON list of `entailment`, `neutral` and `contradiction`.
    """

    messages: tuple[Message, ...]
    schema: Mapping[str, Any]
    sampling: Sampling
    step: str = "write"
    locale: str | None = None
    template_options: Mapping[str, TemplateOption] = field(default_factory=dict)
    early: Early | None = None
    api: ApiBody | None = None
    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[str, str]], step: str) -> Call:
        """A call to the entailment model."""
        return cls((), {}, Sampling(1), step=step, pairs=tuple(pairs))

    @classmethod
    def of_api(cls, route: str, body: Mapping[str, Any]) -> Call:
        """A call given as the body of a request to OpenAI's API; it has one prompt."""
        return cls((), {}, Sampling(0), api=ApiBody(route, body))


class End(StrEnum):
    """Why a call ended. Any end but `COMPLETE` can leave an unfinished text."""

    COMPLETE = "complete"
    TOKEN_LIMIT = "token_limit"  # noqa: S105  the output is incomplete: it reached `max_tokens`
    REPETITION = "repetition"  # stopped in a loop
    WRONG_LANGUAGE = "wrong_language"  # stopped after its first sentences
    REJECTED = "rejected"  # stopped by the call's `early` checks
    PROMPT_TOO_LONG = "prompt_too_long"  # refused: prompt and budget do not fit the model's context


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a call: its first text (the best one, if texts are ranked) and the `others`. `rejection` says why
    an early check stopped it. `answer` is the response object of a call to OpenAI's API.
    """

    text: str
    end: End = End.COMPLETE
    mean_logprob: float | None = None  # set if the call asked for it, or for the best of several texts
    others: tuple[Output, ...] = ()
    rejection: Rejection | None = None
    answer: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Previous:
    """The job's last, rejected attempt. `artifact` is its artifact as JSON values, if the output parsed. `note` is from
    the editor who sent the artifact back.
    """

    reason: RejectionReason
    detail: str
    artifact: Mapping[str, Any] | None = None
    note: str | None = None

    @property
    def keepable(self) -> Mapping[str, Any] | None:
        """The artifact whose sound parts the next attempt can keep; None if an editor sent it back."""
        return None if self.note else self.artifact


@dataclass(frozen=True, slots=True)
class Context:
    """What a plan may know besides the request.

    `max_context` is in tokens. `parameters` is the model's parameter count, 0 if unknown. `verifier` says whether an
    entailment model runs next to the engine; `verification_precision` is the share of verification's findings that are
    right. `examples` are approved texts in the request's voice.
    """

    max_context: int = 8192
    parameters: int = 0
    previous: Previous | None = None
    verifier: bool = False
    verification_precision: float = 0.5
    examples: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether prompts should be short and plain, for a small model."""
        return 0 < self.parameters < PLAIN_PARAMETERS


Calls = tuple[Call, ...]
Outputs = tuple[Output, ...]
Plan = Generator[Calls, Outputs, Verdict]

T = TypeVar("T")


def run(plan: Generator[Calls, Outputs, T], answer: Callable[[Call], Output]) -> T:
    """Run a plan with a function that answers calls one by one. Raises `TypeError` for a step without calls, as a
    worker would.
    """
    try:
        calls = next(plan)
        while True:
            if not calls:
                raise TypeError("a plan yields tuples of one Call or more")
            calls = plan.send(tuple(map(answer, calls)))
    except StopIteration as stop:
        result: T = stop.value
        return result


_STOPPED = {
    End.REPETITION: Rejection(RejectionReason.REPETITION, "the output was stopped in a loop"),
    End.WRONG_LANGUAGE: Rejection(RejectionReason.WRONG_LANGUAGE, "the output was stopped after its first sentences"),
    End.PROMPT_TOO_LONG: Rejection(RejectionReason.PROMPT_TOO_LONG, "the prompt does not fit the model's context"),
}


def stopped(output: Output) -> Rejection | None:
    """Why an output cannot be used, judged by how it ended; one at its token limit may still be complete."""
    return output.rejection or _STOPPED.get(output.end)
