"""What requests for text have in common: the fields of chat completions and completions that say how to write.

Types are strict, and a field that is not declared is refused: it would change the output of another server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from thothy_ai.engine.api import INTERACTIVE_PRIORITY, MAX_PRIORITY, GenerationRequest, SamplingParams
from thothy_ai.engine.api.requests import MAX_CHOICES, MAX_LISTED
from thothy_ai.engine.api.sampling import MAX_BIAS, MAX_STOPS, LogitBias
from thothy_ai.http.errors import ApiError, unsupported
from thothy_ai.jobs.problems import describe

INTERACTIVE = MAX_PRIORITY // 2  # a request's own priority is added
LOWEST = INTERACTIVE_PRIORITY - INTERACTIVE  # above all jobs
SEEDS = 2**63
IDS = 2**31  # of tokens; no vocabulary has so many
_JUDGED = 100  # problems of a field: a list ends at its first one, but a dict can have as many as it has values
BEGINNING = 1_000  # characters of a prompt, or its tokens, by which an engine is chosen that had it before

Parsed = TypeVar("Parsed", bound="Body")
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Token = Annotated[int, Field(ge=0, lt=IDS)]
Option = str | bool | Annotated[int, Field(ge=-SEEDS, lt=SEEDS)] | float  # of a chat template


class Body(BaseModel):
    """A JSON object of a request."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out(cls, body: Any) -> Any:
        """A field that is null is left out, whether or not it is supported."""
        return _without_nulls(body)


def _without_nulls(body: object) -> object:
    return {name: value for name, value in body.items() if value is not None} if isinstance(body, dict) else body


class StreamOptions(Body):
    """What a stream has besides its chunks."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # noise against listeners, which a loopback address does not need


class GenerationBody(Body):
    """The common fields. None is what a field has that is left out."""

    model: Text
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=IDS)] | None = None
    min_p: Annotated[float, Field(ge=0, lt=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    seed: Annotated[int, Field(ge=-SEEDS, lt=SEEDS)] | None = None
    stop: str | Annotated[list[Text], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[Token], Field(max_length=MAX_STOPS)] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None  # clients send it to both routes
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    ignore_eos: bool | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]] | None = None
    priority: Annotated[int, Field(ge=LOWEST, le=INTERACTIVE)] | None = None
    # These say nothing of the text.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    metadata: dict[str, str] | None = None
    store: Literal[False] | None = None
    service_tier: str | None = None

    @field_validator("stream_options")
    @classmethod
    def _check_stream(cls, options: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if options is not None and not info.data.get("stream"):
            raise PydanticCustomError("no_stream", "is only for a request with stream: true")
        return options

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk of what it took."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def limit(self) -> tuple[str | None, int | None]:
        """The name and value of the field that bounds the text: if both are given, the newer one does."""
        if self.max_completion_tokens is not None:
            return "max_completion_tokens", self.max_completion_tokens
        return (None, None) if self.max_tokens is None else ("max_tokens", self.max_tokens)

    @property
    def copies(self) -> int:
        """How often each drawn text is answered: greedy texts are all the same, and are written once."""
        return (self.n or 1) if self.temperature == 0 else 1

    @property
    def sequences(self) -> int:
        """Texts that the engine writes for each prompt."""
        return 1 if self.temperature == 0 else max(self.n or 1, self.best_of or 1)

    def generation(
        self, request_id: str, *, context: int, tenant: str, logprobs: int | None, limit: int | None, **prompt: Any
    ) -> GenerationRequest:
        """The engine's request; InvalidRequestError if the engine could not honour a field.

        `context`: the most tokens that a sequence may have, which is the limit if there is no other. `prompt`: further
        fields of the request, one of which is its prompt.
        """
        wanted = self.n or 1
        texts = 1 if self.copies > 1 else wanted
        listed = context if logprobs is None else MAX_LISTED // (texts * (2 + logprobs))
        most = min(limit or context, context, listed)
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        sampling = SamplingParams(
            max_tokens=most,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=1 if self.top_p == 0 else max(0, self.top_k or 0),
            top_p=self.top_p or 1.0,
            min_p=self.min_p or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
            seed=None if self.seed is None else self.seed % SEEDS,
            stop=tuple(text for text in stop if text),
            ignore_eos=bool(self.ignore_eos),
            min_tokens=self.min_tokens or 0,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            frequency_penalty=self.frequency_penalty or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            logit_bias=self._biases(),
            logprobs=logprobs,
        )
        return GenerationRequest(
            id=request_id,
            sampling=sampling,
            salt=tenant,
            stream=bool(self.stream),
            priority=INTERACTIVE + (self.priority or 0),
            n=texts,
            best_of=self.best_of if self.temperature != 0 else None,
            **prompt,
        )

    def _biases(self) -> tuple[LogitBias, ...]:
        biases = []
        for token, value in (self.logit_bias or {}).items():
            if not token.isascii() or not token.isdecimal() or len(token) > 9:
                raise ApiError(
                    400, f"logit_bias: {token!r} is not a token id", code="invalid_value", param="logit_bias"
                )
            biases.append(LogitBias(int(token), value))
        return tuple(biases)


def parsed(kind: type[Parsed], body: object) -> Parsed:
    """The request; ApiError names the first field that is wrong."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    first = problems[0]["loc"][:1]
    same = islice((each for each in problems if each["loc"][:1] == first), _JUDGED)
    places = [(_place(body, each), each) for each in same]
    # Of what may be of several types, each has its problem: the one that is found deepest was meant, or has this type.
    place, problem = max(places, key=lambda each: (len(each[0]), not each[1]["type"].endswith("_type")))
    path = ".".join(map(str, place))
    if problem["type"] in ("extra_forbidden", "none_required"):
        raise unsupported(path)
    if problem["type"] == "missing":
        raise ApiError(400, f"{path} is missing", code="missing_required_parameter", param=path)
    pattern = problem.get("ctx", {}).get("pattern")  # which programmers can read
    says = f"must match {pattern}" if pattern else describe(problem)
    raise ApiError(400, f"{path}: {says}" if path else f"the body {says}", code="invalid_value", param=path or None)


def _place(body: object, problem: ErrorDetails) -> list[str | int]:
    """A problem's place in the body, without the names of types, which pydantic puts between fields.

    A name can be that of a type and of a field: `text`, in a part of a message. The reading that ends at the problem's
    value is right, and of several, the one that finds more of the place.
    """
    place, absent = list(problem["loc"]), list[str | int]()
    if problem["type"] == "missing":
        absent = [place.pop()]

    def likelihood(reading: tuple[list[str | int], object]) -> tuple[bool, int]:
        found, value = reading
        given = problem["input"]
        return given == value or (isinstance(given, dict) and given == _without_nulls(value)), len(found)

    found, _ = max(_readings(body, place), key=likelihood)
    return [*found, *absent]


def _readings(body: Any, place: Sequence[str | int]) -> Iterator[tuple[list[str | int], object]]:
    """The places in the body that a problem's place may mean, with what is there."""
    if not place:
        yield [], body
        return
    part, *rest = place
    yield from _readings(body, rest)
    if part in (range(len(body)) if isinstance(body, list) else body if isinstance(body, dict) else ()):
        yield from (([part, *found], value) for found, value in _readings(body[part], rest))
