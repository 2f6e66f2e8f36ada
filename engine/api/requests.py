"""The engine's interface: requests in, deltas and results out, and its statistics.

Plain dataclasses of plain values, so that they travel as msgpack and import anywhere (no torch, no pydantic).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.api.messages import CallDelta, Message, ToolCall, Tools
from thothy_ai.engine.api.numbers import Finite
from thothy_ai.engine.api.sampling import BeamSearch, SamplingParams, TokenLogprob
from thothy_ai.engine.api.template_options import TemplateOption, check_template_options

MAX_PRIORITY = 1000
INTERACTIVE_PRIORITY = 101  # and above: someone waits for the text, and other prompts get smaller parts of a step
MAX_NAME = 1_000  # characters of an id, a profile or a salt, all of which an engine keeps
MAX_SCHEMA = 256 * 1024  # characters
_LONGEST = (
    *((name, MAX_NAME) for name in ("id", "adapter", "profile", "salt")),
    ("schema", MAX_SCHEMA),
)
MAX_CHOICES = 64
MAX_PAIRS = 1_000
MAX_LISTED = 2_000_000  # log-probabilities and tokens of a result, which has to fit a frame


class FinishReason(StrEnum):
    """Why a generation has ended."""

    STOP = "stop"  # end-of-text, a stop string, or the grammar is complete
    LENGTH = "length"  # max_tokens, or no room left in context or pool
    ABORTED = "aborted"
    REPETITION = "repetition"  # the output had begun to repeat itself


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to complete. Exactly one of `messages`, `text`, `token_ids` is given.

    Or `pairs`, each a premise and a claim: the result's text is a JSON list with `entailment`, `neutral` or
    `contradiction` for each, by the entailment model beside the engine, and is empty if that has failed.

    `schema` is a JSON schema (as JSON text) that the output must match; it excludes `stop` and `stop_token_ids`.
    `adapter` names one that the engine has loaded; without one, the model itself answers.
    `profile` names the population whose output lengths this request is like (the service passes a job kind); admission
    learns from it. `salt` separates prefix caches (the service passes a tenant). Higher `priority` goes first.
    `deadline` is in Unix seconds.

    Whoever sends a `booked` request accounts for its seconds (a worker books them on a job); the seconds of all others
    are counted as `direct_seconds`.

    With `report_after`, a request that does not stream sends a delta once it has at least so many output tokens; with
    `report_again`, another one each time it has half as many again.
    `stop_repetition` ends an output that repeats itself, with REPETITION; None does so for requests with a schema.
    `template_options` are variables of the model's chat template, such as `enable_thinking`; a template ignores those
    that it does not have.

    The result has `n` choices over one prompt, which is computed once as far as the prefix cache reaches. Of `best_of`
    drawn texts, these are the ones with the highest mean log-probability. With a seed, the first choice is what it
    would be alone. A `beam_search` gives its `n` best texts. Deltas of choices that are ranked come at the end.

    An output that is `divided` comes as what the model thinks, says and calls; a schema binds what it says. Requests
    with tools are divided. Stop strings end what it says, and are not looked for elsewhere.
    """

    id: str
    messages: tuple[Message, ...] = ()
    text: str | None = None
    token_ids: tuple[int, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    schema: str | None = None
    profile: str = ""
    salt: str = ""
    stream: bool = False  # send deltas; without it only the result comes back
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

    def __post_init__(self) -> None:
        """Refuse an order that no queue could keep, and texts that are too long (`InvalidRequestError`)."""
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

    @property
    def candidates(self) -> int:
        """Texts that are drawn, of which `n` are returned."""
        return self.n if self.best_of is None else self.best_of

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
    """Text (and the tokens behind it) that a choice of a streaming request gained since its last delta. What it gained
    besides is in `thoughts` and `calls`, if the output is divided.

    `logprobs` has one for each token, as in a `Choice`, if the request wants some.
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
    """What a generation took. `compute_seconds` is its share of the device's busy time (GPU-seconds on a GPU).

    Of a request with several candidates, the output of all counts, also of those that are not returned.
    """

    prompt_tokens: int
    cached_tokens: int  # of the prompt, found in the prefix cache
    output_tokens: int
    compute_seconds: Finite
    preemptions: int = 0
    thought_tokens: int = 0  # of the output
    adapters: tuple[str, ...] = ()  # digests of the adapter that it used; several if that was loaded anew meanwhile


@dataclass(frozen=True, slots=True)
class Choice:
    """One text of a request. `logprobs` has one for each token if the request wants some: None for a token that its
    schema forced. `mean_logprob` is the mean over the tokens that were drawn.
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
    """A finished generation: its first choice, which is the best one where they are ranked, and the `others`."""

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
        """A result with these choices, of which there is at least one."""
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
    parameters: int = 0  # of the model; 0 if unknown
    end_tokens: tuple[int, ...] = ()  # the model's, which end a text
    name: str = ""  # the same after a restart
    machine: str = ""
    devices: tuple[str, ...] = ()  # UUIDs of the GPUs that it uses
    capacity: int = 0  # most sequences at once; 0 if unknown
    model_name: str = ""  # by which jobs ask for it
    registered: bool = False  # a registrar records its sessions; without one, it gets no jobs
    declared_gpus: int = 0  # of another's server: its seconds are not measured; 0 for an engine of ours
    verifier: str = ""  # the entailment model beside the engine; empty if there is none
    weights: str = ""  # a digest of the model's files; empty if they are not here
    verifier_weights: str = ""

    @property
    def num_gpus(self) -> int:
        """How many GPUs it uses or, being another's server, is said to use; 0 on a CPU."""
        return self.declared_gpus or len(self.devices)


@dataclass(frozen=True, slots=True)
class AbandonedRequest:
    """Usage of a request whose client disconnected; `id` is the client's."""

    id: str
    compute_seconds: Finite


@dataclass(frozen=True, slots=True)
class AbandonedUsage:
    """Usage of abandoned requests in one engine session; each request is reported once."""

    session_id: str
    requests: tuple[AbandonedRequest, ...] = ()
