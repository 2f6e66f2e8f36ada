"""Open-loop load on a server with OpenAI's API: requests are sent when they are due, however many are unanswered.

Times count from the moment a request is sent. Its delay is measured as well, since a lagging client loads the server
less than it claims.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thothy_ai.engine.api.errors import ConnectionLostError, EngineError, InvalidRequestError
from thothy_ai.foreign.http import HttpServer
from thothy_ai.foreign.replies import piece_of, refusal_of

CHAT = "/chat/completions"
LATE_SECONDS = 0.01  # the p99 delay above which the client counts as lagging
BUSY_SHARE = 0.8  # of one core, above which the client counts as lagging
_SYLLABLES = ("ba", "de", "fi", "go", "lu", "ma", "ne", "pi", "ro", "su", "ta", "ve")
_TAIL = 8192  # bytes kept of a stream, for its last events


@dataclass(frozen=True, slots=True)
class Goal:
    """The limits of a good answer, in seconds: until its first token, and the mean for each further token."""

    first_token: float = 0.2
    per_token: float = 0.05


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """One request, in seconds: when it was due, how late it was sent, and the times of its answer since it was sent.
    With an `error`, the answer's values are 0.
    """

    due: float
    late: float
    first_token: float = 0.0
    whole: float = 0.0
    tokens: int = 0
    error: str | None = None

    @property
    def end(self) -> float:
        return self.due + self.late + self.whole

    @property
    def per_token(self) -> float:
        """The mean time of each token after the first."""
        return (self.whole - self.first_token) / max(1, self.tokens - 1)

    def meets(self, target: Goal) -> bool:
        return self.error is None and self.first_token <= target.first_token and self.per_token <= target.per_token


@dataclass(frozen=True, slots=True)
class Load:
    """The requests of one rate. `seconds`: until the last answer. `cpu`: the share of a core that the client used."""

    rate: float
    seconds: float
    cpu: float
    samples: tuple[RequestTiming, ...]

    @property
    def answered(self) -> list[RequestTiming]:
        return [sample for sample in self.samples if sample.error is None]

    @property
    def is_short(self) -> bool:
        """Whether all answers ended within less time than one answer takes, so that their ends show no rate."""
        return self._span < (self.percentile("whole", 0.5) or 0.0)

    @property
    def answers_per_second(self) -> float:
        """The rate between the end of the first answer and the end of the last. Before the first, the server is not
        fully loaded yet. For a short load, the rate over its whole time, which is too low rather than too high.
        """
        answers = len(self.answered)
        return answers / self.seconds if self.is_short or not self._span else (answers - 1) / self._span

    @property
    def _span(self) -> float:
        ends = [sample.end for sample in self.answered]
        return max(ends) - min(ends) if ends else 0.0

    def percentile(self, name: str, share: float) -> float | None:
        """A percentile of `first_token`, `per_token` or `whole` of the answered requests, or of `late` of all."""
        samples = self.samples if name == "late" else self.answered
        return percentile([getattr(sample, name) for sample in samples], share)

    def attained(self, target: Goal) -> float:
        """The share of all requests whose answers are good."""
        return sum(sample.meets(target) for sample in self.samples) / len(self.samples)

    @property
    def lags(self) -> bool:
        """Whether the client, rather than the server, may have limited the rate."""
        return (self.percentile("late", 0.99) or 0.0) > LATE_SECONDS or self.cpu > BUSY_SHARE


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that this share of the values does not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else None


class LoadClient:
    """Sends requests to one model of a server, with prompts and outputs of given lengths. For use on one loop."""

    def __init__(
        self, server: HttpServer, model: str, prompt_tokens: int, output_tokens: int, seed: int, patience: float
    ) -> None:
        self._server, self._model, self._patience = server, model, patience
        self._prompt_tokens, self._output_tokens, self._seed = prompt_tokens, output_tokens, seed
        self._words = 1
        self._extra: dict[str, Any] = {"ignore_eos": True, "min_tokens": output_tokens}

    async def prepare(self) -> int:
        """Find out how many words make a prompt of the given length, and whether the server lets the length of outputs
        be forced. Returns the actual number of prompt tokens. Raises `EngineError`.
        """
        try:
            base = await self._prompt_tokens_of(1)
        except InvalidRequestError:
            self._extra = {}
            base = await self._prompt_tokens_of(1)
        per_word = (await self._prompt_tokens_of(101) - base) / 100
        self._words = max(1, round((self._prompt_tokens - base) / max(per_word, 0.1)) + 1)
        return await self._prompt_tokens_of(self._words)

    async def run(self, rate: float, seconds: float, least: int) -> Load:
        """Send requests for `seconds`, but at least `least`, and wait for each answer, within the patience."""
        draw = random.Random(f"{self._seed} {rate}")
        at, due = 0.0, list[float]()
        while at < seconds or len(due) < least:
            due.append(at)
            at += draw.expovariate(rate)
        bodies = [self._body(self._text(draw, self._words), self._output_tokens) for _ in due]
        began, cpu = time.perf_counter(), _cpu_seconds()
        tasks = []
        for at, body in zip(due, bodies, strict=True):
            if (pause := began + at - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            tasks.append(asyncio.create_task(self._sample(began, at, body)))
        samples = await asyncio.gather(*tasks)
        took = time.perf_counter() - began
        return Load(rate, took, (_cpu_seconds() - cpu) / took, tuple(samples))

    async def _sample(self, began: float, due: float, body: bytes) -> RequestTiming:
        sent = time.perf_counter()
        late = sent - began - due
        try:
            async with asyncio.timeout(self._patience):
                first, tokens = await self._stream(body)
        except TimeoutError:
            return RequestTiming(due, late, error=f"not answered within {self._patience:g} s")
        except EngineError as error:
            return RequestTiming(due, late, error=str(error))
        return RequestTiming(due, late, first - sent, time.perf_counter() - sent, tokens)

    async def _stream(self, body: bytes) -> tuple[float, int]:
        """When the first text arrived, and the number of tokens. Later events are counted without being parsed."""
        first, events, data = 0.0, 0, bytearray()
        async with self._server.exchange("POST", CHAT, body) as answer:
            if answer.status != 200:
                raise refusal_of(answer.status, None, await answer.whole())
            async for chunk in answer.chunks():
                data += chunk
                if not first and any(piece.text or piece.thoughts for piece in map(piece_of, _events(data))):
                    first = time.perf_counter()
                events += chunk.count(b"data: ")
                if first and len(data) > 2 * _TAIL:
                    del data[:-_TAIL]
        pieces = list(map(piece_of, _events(data)))  # raises the error that ended the stream
        if not first or not data.rstrip().endswith(b"[DONE]"):
            raise ConnectionLostError("the stream ended early")
        return first, next((piece.usage[2] for piece in pieces if piece.usage), events - 1)

    def _body(self, text: str, tokens: int) -> bytes:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "temperature": 1.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._extra,
        }
        return json.dumps(body).encode()

    async def _prompt_tokens_of(self, words: int) -> int:
        body = json.loads(self._body(self._text(random.Random(words), words), 1))
        body |= {"stream": False, **({"min_tokens": 1} if self._extra else {})}
        del body["stream_options"]
        async with asyncio.timeout(self._patience), self._server.exchange("POST", CHAT, body) as answer:
            if answer.status != 200:
                raise refusal_of(answer.status, None, await answer.whole())
            usage = piece_of(await answer.json()).usage
        if usage is None:
            raise InvalidRequestError("the server says nothing of the tokens that a prompt has")
        return usage[0]

    @staticmethod
    def _text(draw: random.Random, words: int) -> str:
        """Words with which no other prompt begins, so that the prefix cache never holds them."""
        return " ".join("".join(draw.choices(_SYLLABLES, k=3)) for _ in range(words))


def _events(data: bytes | bytearray) -> list[Any]:
    """The JSON of the complete events in this part of a stream."""
    found = []
    for line in bytes(data).split(b"\n")[:-1]:
        if line.startswith(b"data: {"):
            try:
                found.append(json.loads(line[6:]))
            except ValueError:  # the event's beginning was dropped
                continue
    return found


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
