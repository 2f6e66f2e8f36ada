"""A generation request and what comes back: deltas, choices, the result and its usage; also the engine's identity.

A request checks itself: InvalidRequestError names the field that is out of range or does not go with another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.api.limits import refusal_of_budget
from thothy_ai.engine.api.messages import CallDelta, Message, ToolCall, Tools
from thothy_ai.engine.api.numbers import Finite
from thothy_ai.engine.api.sampling import BeamSearch, SamplingParams, TokenLogprob
from thothy_ai.engine.api.template_options import TemplateOption, check_template_options

MAX_PRIORITY = 1000
INTERACTIVE_PRIORITY = 101  # from here on someone waits for the text, and other prompts get smaller parts of a step
MAX_NAME = 1_000  # characters of an id, a profile or a salt; an engine keeps all three
MAX_SCHEMA = 256 * 1024  # characters
_LONGEST = (
    *((name, MAX_NAME) for name in ("id", "adapter", "profile", "salt")),
    ("schema", MAX_SCHEMA),
)
MAX_CHOICES = 64
MAX_PAIRS = 1_000
MAX_KV_BUDGET = 2**31 - 1  # tokens
MAX_LISTED = 2_000_000  # log-probabilities and tokens of a result, which must fit one frame


class FinishReason(StrEnum):
    """Why a generation has ended."""

    STOP = "stop"  # end-of-text, a stop string, or the grammar is complete
    LENGTH = "length"  # max_tokens, or no room left in context or pool
    ABORTED = "aborted"
    REPETITION = "repetition"  # the output began to repeat itself


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to complete. Exactly one of `messages`, `text`, `token_ids` and `pairs` is given.

    Each of the `pairs` is a premise and a claim. The engine's entailment model judges them: the result's text is a JSON
    list with `entailment`, `neutral` or `contradiction` for each pair, or empty if that model failed.

    `schema` is a JSON schema (as JSON text) that the output must match; it excludes `stop` and `stop_token_ids`.
    `adapter` names a loaded adapter; without one, the base model answers.
    `profile` groups requests of similar output lengths, from which admission learns (the service passes a job kind).
    `salt` separates prefix caches (the service passes a tenant). Higher `priority` goes first. `deadline` is in Unix
    seconds.

    The sender of a `booked` request accounts for its seconds (a worker books them on a job); the seconds of all other
    requests are counted as `direct_seconds`.

    With `report_after`, a request that does not stream sends a delta once it has at least that many output tokens; with
    `report_again`, it sends another each time their number has grown by half.
    `stop_repetition` ends an output that repeats itself, with REPETITION; None does so for requests with a schema.
    `template_options` are variables of the model's chat template, such as `enable_thinking`; a template ignores those
    that it does not have.

    The result has `n` choices over one prompt, which is computed once as far as the prefix cache reaches. With
    `best_of`, they are those of that many drawn texts with the highest mean log-probability. With a seed, the first
    text drawn is the same whatever `n` is. A `beam_search` returns its `n` best texts. Deltas of ranked choices come at
    the end.

    With a `kv_budget`, the engine keeps the KV of that many tokens, and drops the least important blocks each time it
    has a quarter more; a text that cannot exceed the budget is not affected. It saves memory and time where sources are
    very long, and loses facts. The request's blocks are not shared with others, so that it makes only one text.

    A `divided` output is split into thoughts, answer and tool calls; a schema and stop strings apply to the answer
    alone. Requests with tools are always divided.
    """

    id: str
    messages: tuple[Message, ...] = ()
    text: str | None = None
    token_ids: tuple[int, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    schema: str | None = None
    profile: str = ""
    salt: str = ""
    stream: bool = False  # send deltas; otherwise only the result comes back
    priority: int = 0
    deadline: float | None = None
    booked: bool = False
    report_after: int = 0  # output tokens; 0: no early delta
    report_again: bool = False
    stop_repetition: bool | None = None
    n: int = 1
    best_of: int | None = None  # None: as many as `n`
    beam_search: BeamSearch | None = None
    template_options: Mapping[str, TemplateOption] = field(default_factory=dict)
    divided: bool = False
    tools: Tools | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    adapter: str = ""
    kv_budget: int | None = None  # tokens; None: all are kept

    def __post_init__(self) -> None:
        """Raise InvalidRequestError for priorities that no queue could keep, and for texts that are too long."""
        check_template_options(self.template_options)
        if self.report_after < 0:
            raise InvalidRequestError(f"report_after={self.report_after} is out of range", "report_after")
        if not -MAX_PRIORITY <= self.priority <= MAX_PRIORITY:
            raise InvalidRequestError(f"priority={self.priority} is out of range", "priority")
        if self.deadline is not None and not math.isfinite(self.deadline):
            raise InvalidRequestError(f"deadline={self.deadline} is not a time", "deadline")
        for name, most in _LONGEST:
            if len(getattr(self, name) or "") > most:
                says = f"{name} has {len(getattr(self, name)):,} characters; {most:,} are possible"
                raise InvalidRequestError(says, name)
        if len(self.pairs) > MAX_PAIRS or (self.pairs and self.adapter):
            says = f"pairs has {len(self.pairs):,} entries; {MAX_PAIRS:,} are possible, and no adapter"
            raise InvalidRequestError(says)
        for name in ("stop", "stop_token_ids") if self.schema is not None else ():
            if getattr(self.sampling, name):
                says = f"{name} is not possible with a schema, whose text ends when it is complete"
                raise InvalidRequestError(says, name)
        if self.tools is not None and not (self.divided and self.messages):
            raise InvalidRequestError("tools is possible only with messages, and an output that is divided", "tools")
        self._check_choices()
        self._check_budget()

    @property
    def candidates(self) -> int:
        """Number of texts to draw, of which `n` are returned."""
        return self.n if self.best_of is None else self.best_of

    def _check_budget(self) -> None:
        if self.kv_budget is None:
            return
        if not 1 <= self.kv_budget <= MAX_KV_BUDGET:
            raise InvalidRequestError(f"kv_budget={self.kv_budget} is out of range", "kv_budget")
        if self.candidates > 1 or self.beam_search is not None:
            raise InvalidRequestError("kv_budget is possible only for one text, since no KV is shared", "kv_budget")
        if self.pairs:
            raise InvalidRequestError("kv_budget is not possible with pairs, which another model judges", "kv_budget")

    def _check_choices(self) -> None:
        sampling, count = self.sampling, self.candidates
        if not 1 <= self.n <= MAX_CHOICES:
            raise InvalidRequestError(f"n={self.n} is not between 1 and {MAX_CHOICES}", "n")
        if not self.n <= count <= MAX_CHOICES:
            says = f"best_of={self.best_of} is not between n={self.n} and {MAX_CHOICES}"
            raise InvalidRequestError(says, "best_of")
        if self.beam_search is not None:
            width = self.beam_search.width
            if self.n > width or self.best_of is not None:
                says = f"n={self.n}, best_of={self.best_of}: a beam search has {width} results"
                raise InvalidRequestError(says, "n" if self.n > width else "best_of")
            own = [name for name in ("schema", "stop_repetition", "divided") if getattr(self, name)]
            for name in (*sampling.beyond_beams, *own):
                raise InvalidRequestError(f"{name} is not possible with beam_search", name)
        elif count > 1 and sampling.is_greedy:
            name = "n" if self.best_of is None else "best_of"
            says = f"{name}={count} needs a temperature: greedy texts are all the same"
            raise InvalidRequestError(says, name)
        if sampling.logprobs is not None and sampling.max_tokens * self.n * (2 + sampling.logprobs) > MAX_LISTED:
            says = f"logprobs={sampling.logprobs} for n={self.n} of {sampling.max_tokens} max_tokens"
            raise InvalidRequestError(says, "logprobs")


@dataclass(frozen=True, slots=True)
class Delta:
    """Text, with its tokens, that a choice of a streaming request gained since its last delta; if the output is
    divided, also the `thoughts` and `calls` gained.

    `logprobs` has one entry per token, as in a `Choice`, if the request asks for them.
    """

    id: str
    text: str
    token_ids: tuple[int, ...]
    choice: int = 0
    logprobs: tuple[TokenLogprob | None, ...] = ()
    thoughts: str = ""
    calls: tuple[CallDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a generation consumed. `compute_seconds` is its share of the device's busy time (GPU-seconds on a GPU).

    The output of all candidates counts, including those that are not returned.
    """

    prompt_tokens: int
    cached_tokens: int  # prompt tokens found in the prefix cache
    output_tokens: int
    compute_seconds: Finite
    preemptions: int = 0
    thought_tokens: int = 0  # output tokens spent on thoughts
    adapters: tuple[str, ...] = ()  # digests of the adapter used; several if it was reloaded meanwhile


@dataclass(frozen=True, slots=True)
class Choice:
    """One text of a request. `logprobs` has one entry per token if the request asks for them, None for a token that
    the schema forced. `mean_logprob` is the mean over the drawn tokens.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob | None, ...] = ()
    mean_logprob: Finite | None = None
    thoughts: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A finished generation: its first choice, which is the best one if choices are ranked, and the `others`."""

    id: str
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    logprobs: tuple[TokenLogprob | None, ...] = ()
    mean_logprob: Finite | None = None
    others: tuple[Choice, ...] = ()
    thoughts: str = ""
    calls: tuple[ToolCall, ...] = ()

    @classmethod
    def of(cls, request_id: str, choices: Sequence[Choice], usage: Usage) -> GenerationResult:
        """Build a result from these choices; there must be at least one."""
        first = choices[0]
        text = (first.text, first.token_ids, first.finish_reason)
        others = tuple(choices[1:])
        return cls(request_id, *text, usage, first.logprobs, first.mean_logprob, others, first.thoughts, first.calls)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All choices, the first one included."""
        text = (self.text, self.token_ids, self.finish_reason)
        return (Choice(*text, self.logprobs, self.mean_logprob, self.thoughts, self.calls), *self.others)


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Identity of the engine, fixed at start."""

    session_id: str  # a UUID, new with every engine process
    model: str
    device: str  # "cuda:0 NVIDIA H200", "cpu"
    dtype: str
    block_size: int
    num_blocks: int
    max_context: int
    started_at: Finite  # Unix seconds
    parameters: int = 0  # number of weights of the model; 0 if unknown
    end_tokens: tuple[int, ...] = ()  # the model's end-of-text tokens
    name: str = ""  # the same after a restart
    machine: str = ""
    devices: tuple[str, ...] = ()  # UUIDs of its GPUs
    capacity: int = 0  # sequences at once, at most; 0 if unknown
    model_name: str = ""  # the name by which jobs ask for the model
    registered: bool = False  # a registrar records its sessions; without one, it gets no jobs
    declared_gpus: int = 0  # of a third-party server, whose seconds are not measured; 0 for our own engine
    verifier: str = ""  # the engine's entailment model; empty if it has none
    weights: str = ""  # a digest of the model's files; empty if they are on another machine
    verifier_weights: str = ""
    budgeted_context: int = 0  # maximum tokens of a request with a KV budget; 0 if unknown
    min_kv_budget: int = 0  # tokens
    keeps_all: str = ""  # why no request can have a KV budget; empty if requests can

    @property
    def num_gpus(self) -> int:
        """The GPUs it uses or, for a third-party server, is declared to use; 0 on a CPU."""
        return self.declared_gpus or len(self.devices)

    def refusal_of_budget(self, tokens: int) -> str:
        """Why a request cannot have this KV budget if its text could exceed it; empty if it can."""
        return refusal_of_budget(tokens, self.min_kv_budget, self.keeps_all)


@dataclass(frozen=True, slots=True)
class AbandonedRequest:
    """Usage of a request whose client disconnected; `id` is the client's id of it."""

    id: str
    compute_seconds: Finite


@dataclass(frozen=True, slots=True)
class AbandonedUsage:
    """Usage of one engine session's abandoned requests; each request is reported once."""

    session_id: str
    requests: tuple[AbandonedRequest, ...] = ()
