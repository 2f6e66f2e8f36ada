"""An engine's client that needs no engine: what it answers to a prompt is the prompt's first word.

ok       an artifact            retry    refused by the validator, until `answers` says otherwise
hang     nothing, until aborted long     PromptTooLongError          bad      GrammarError
broken   EngineError            lost     EngineLostError, a new life  cut      ConnectionLostError, the same life
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from uuid import uuid4

from thothy_ai.engine.api import (
    CoreStats,
    Delta,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Usage,
)
from thothy_ai.engine.api.errors import (
    ConnectionLostError,
    EngineError,
    EngineLostError,
    EngineNotAcceptingError,
    GrammarError,
    PromptTooLongError,
    UnknownAdapterError,
)

ERRORS = {
    "long": PromptTooLongError,
    "bad": GrammarError,
    "broken": EngineError,
    "lost": EngineLostError,
    "cut": ConnectionLostError,
}
FAILED_USAGE = Usage(10, 4, 2, 0.125)  # of `bad` and `broken`, which fail as they run


class FakeGeneration:
    def __init__(self, request: GenerationRequest, client: FakeClient) -> None:
        self.id = request.id
        self._aborted = asyncio.Event()
        self._ended = asyncio.Event()
        self._client = client
        self._delay = client.delay
        self.request = request
        self.usage: Usage | None = None
        self._adapters = tuple(client.loaded[name] for name in [request.adapter] if name in client.loaded)

    async def result(self) -> GenerationResult:
        word = self.request.messages[0].content.split()[0]
        if self.request.adapter and not self._adapters:
            raise UnknownAdapterError("it is not loaded", "adapter")
        if word == "lost":
            self._client.renew()
        if word == "cut":
            self._client.on_lost()
        if error := ERRORS.get(word):
            self.usage = FAILED_USAGE if word in {"broken", "bad"} else None
            raise error(f"{word} it is")
        if word == "hang" or self._delay or self._client.held:
            await self._take_time(None if word == "hang" else self._delay)
            if self._aborted.is_set():
                return self._finished("", FinishReason.ABORTED)
        return self._finished(
            json.dumps({"echo": self.request.messages[0].content.partition("\n")[0][:100]}), FinishReason.STOP
        )

    async def _take_time(self, seconds: float | None) -> None:
        """Until the client lets go and so many seconds are over, None: for ever; or until it is aborted."""
        while self._client.held and not self._aborted.is_set():  # noqa: ASYNC110 - a test's thread changes it
            await asyncio.sleep(0.01)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._aborted.wait()

    def _finished(self, text: str, reason: FinishReason) -> GenerationResult:
        self._ended.set()
        self.usage = Usage(10, 4, 5, 0.25, adapters=self._adapters)
        return GenerationResult(self.id, text, (), reason, self.usage)

    async def early_text(self) -> str:
        """What the test has the client say, all of it."""
        async for _ in self:
            return "".join(self._client.said)
        return ""

    async def text_beyond(self, characters: int) -> str:
        """As `early_text` once the client says more than so many characters; then what it had said when this ended."""
        async for _ in self:
            if len("".join(self._client.said)) > characters:
                break
        return "".join(self._client.said)

    async def abort(self) -> None:
        self._aborted.set()

    async def stream(self) -> None:
        self._client.streamed.append(self.id)

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """What the test has the client say, as long as this runs."""
        said = 0
        while not self._ended.is_set():
            for text in self._client.said[said:]:
                said += 1
                yield Delta(self.id, text, ())
            await asyncio.sleep(0.01)


class FakeClient:
    """`up` says whether the engine can be reached. `submitted` are the requests it saw."""

    name = "first"  # `engine_rows.register_first` records an engine of this name

    def __init__(self, delay: float = 0.0) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        self.up = True
        self.accepting = True
        self.delay = delay
        self.held = False  # while it is, no generation ends except by an abort; a test sets and resets it
        self.submitted: list[GenerationRequest] = []
        self.streamed: list[str] = []  # ids of generations that were asked for deltas
        self.said: list[str] = []  # deltas of each generation that streams; a test appends
        self.begun: set[str] | None = None  # the record that a dead engine left, if there is one
        self.model_name = ""
        self.loaded: dict[str, str] = {}  # digests of adapters, by name
        self.session_id = str(uuid4())
        self.started_at = time.time()

    def renew(self) -> None:
        """The engine was started anew."""
        self.accepting = True
        self.session_id = str(uuid4())

    async def start(self) -> None:
        self._reach()

    async def info(self) -> EngineInfo:
        self._reach()
        if self.delay < 0:
            raise ZeroDivisionError("nonsense")
        return EngineInfo(
            self.session_id, "fake", "cpu", "float32", 16, 100, 1024, self.started_at,
            name=self.name, registered=True, model_name=self.model_name,
        )  # fmt: skip

    async def stats(self) -> EngineStats:
        self._reach()
        count = len(self.submitted)
        return EngineStats(core=CoreStats(busy_seconds=0.25 * count, output_tokens=5 * count))

    async def submit(self, request: GenerationRequest) -> FakeGeneration:
        self._reach()
        if not self.accepting:
            raise EngineNotAcceptingError("not accepting")
        self.submitted.append(request)
        return FakeGeneration(request, self)

    def may_have_begun(self, session_id: str, request_ids: Sequence[str]) -> bool:
        return self.begun is None or any(id_ in self.begun for id_ in request_ids)

    async def close(self) -> None:
        pass

    def _reach(self) -> None:
        if not self.up:
            raise EngineLostError("away")
