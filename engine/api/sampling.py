"""How a request's tokens are chosen, and the limits of its sampling parameters.

A row of scores goes through logit bias, repetition penalty, frequency and presence penalties, minimum tokens, the
grammar's mask, temperature, top-k, top-p and min-p, in this order. Where transformers has them, the order is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.api.numbers import Finite

MAX_STOPS = 64  # of stop strings, and of stop tokens
MAX_STOP = 1_000  # characters of a stop string; each is searched for after every token
MAX_BIASES = 300
MAX_BIAS = 100.0
MAX_END_TOKENS = 100  # stop tokens and the model's end-of-text tokens together, if the output has a minimum
MAX_ENTRIES = MAX_BIASES + MAX_END_TOKENS
MAX_LOGPROBS = 20  # OpenAI's limit
MAX_BEAMS = 16
_MAX_ADDITIVE = 2.0  # OpenAI's range of frequency and presence penalties


@dataclass(frozen=True, slots=True)
class LogitBias:
    """`value` is added to the token's score; -100 mostly bans it, 100 mostly forces it (OpenAI's `logit_bias`)."""

    token: int
    value: float

    def __post_init__(self) -> None:
        """Raise InvalidRequestError for a token or a value that no sampler could honour."""
        if self.token < 0 or not -MAX_BIAS <= self.value <= MAX_BIAS:
            says = f"logit_bias of {self.value!r} for token {self.token} is out of range"
            raise InvalidRequestError(says, "logit_bias")


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of a drawn token, and those of the likeliest tokens in descending order. All are by the
    model's own scores, before sampling parameters change them.
    """

    logprob: Finite
    top_tokens: tuple[int, ...] = ()
    top_logprobs: tuple[Finite, ...] = ()


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen. The defaults are greedy.

    `seed` fixes a request's draws whatever else is in its batch; None: a random one per request.
    `top_k` 0 and `top_p` 1 have no effect. `repetition_penalty` follows CTRL (Keskar et al., 2019): prompt and
    output tokens count. `frequency_penalty` is subtracted once per occurrence of a token in the output,
    `presence_penalty` once if it occurs there (OpenAI's definitions); forced tokens of a grammar count.

    The text ends at the model's end-of-text tokens, unless `ignore_eos`, and at `stop_token_ids`; the output contains
    none of them. Before `min_tokens`, only the end of a grammar ends it. With `logprobs`, the result has the
    log-probability of each drawn token, and those of that many of the likeliest tokens.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[LogitBias, ...] = ()
    logprobs: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that no sampler could honour (`InvalidRequestError`, naming the parameter)."""
        checks = {
            "max_tokens": self.max_tokens >= 1,
            "temperature": 0.0 <= self.temperature <= 100.0,
            "top_k": self.top_k >= 0,
            "top_p": 0.0 < self.top_p <= 1.0,
            "min_p": 0.0 <= self.min_p < 1.0,
            "repetition_penalty": 0.0 < self.repetition_penalty <= 10.0,
            "seed": self.seed is None or 0 <= self.seed < 2**63,
            "stop": all(self.stop),
            "min_tokens": 0 <= self.min_tokens <= self.max_tokens,
            "stop_token_ids": min(self.stop_token_ids, default=0) >= 0,
            "frequency_penalty": abs(self.frequency_penalty) <= _MAX_ADDITIVE,
            "presence_penalty": abs(self.presence_penalty) <= _MAX_ADDITIVE,
            "logprobs": self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS,
        }
        for name, holds in checks.items():
            if not holds:
                raise InvalidRequestError(f"{name}={getattr(self, name)!r} is out of range", name)
        if len(self.stop) > MAX_STOPS or max(map(len, self.stop), default=0) > MAX_STOP:
            says = f"at most {MAX_STOPS} stop strings of {MAX_STOP:,} characters each are possible"
            raise InvalidRequestError(says, "stop")
        if len(self.stop_token_ids) > MAX_STOPS:
            raise InvalidRequestError(f"stop_token_ids has more than {MAX_STOPS} tokens", "stop_token_ids")
        if len(self.logit_bias) > MAX_BIASES:
            raise InvalidRequestError(f"logit_bias has more than {MAX_BIASES} entries", "logit_bias")
        if len({bias.token for bias in self.logit_bias}) < len(self.logit_bias):
            raise InvalidRequestError("logit_bias names a token twice", "logit_bias")

    @property
    def changes_scores(self) -> bool:
        """Whether anything but a repetition penalty changes scores before tokens are chosen."""
        return bool(self.frequency_penalty or self.presence_penalty or self.logit_bias or self.min_tokens)

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is chosen."""
        return self.temperature == 0.0

    @property
    def beyond_beams(self) -> list[str]:
        """Names of the parameters whose values exclude a beam search."""
        plain = SamplingParams(self.max_tokens)
        names = ("temperature", "stop", "repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias")
        return [name for name in (*names, "logprobs") if getattr(self, name) != getattr(plain, name)]


class EarlyStopping(StrEnum):
    """When a beam search that has as many complete texts as beams ends (the values of transformers' option)."""

    FULL = "true"  # at once
    LIKELY = "false"  # when no beam is likely to become better, judged by its present length
    NEVER = "never"  # when none can become better


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Keep the `width` likeliest beginnings; a text ranks by its log-probability over its length ** `length_penalty`.

    The results are those of transformers' `generate(num_beams=width, length_penalty=..., early_stopping=...)`.
    """

    width: int
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = EarlyStopping.LIKELY

    def __post_init__(self) -> None:
        """Refuse values that no search could honour (`InvalidRequestError`, naming the parameter)."""
        if not 2 <= self.width <= MAX_BEAMS:
            raise InvalidRequestError(
                f"beam_search: width={self.width} is not between 2 and {MAX_BEAMS}", "beam_search"
            )
        if not -10.0 <= self.length_penalty <= 10.0:
            says = f"beam_search: length_penalty={self.length_penalty} is out of range"
            raise InvalidRequestError(says, "beam_search")
