"""One engine for several workers, which dies when it runs a prompt that begins with `kill`, and is soon back.

Each worker gets a client from `client`. `deaths` are the prompts in flight at each death.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from uuid import uuid4

from tests.support.fake_engine import FakeClient, FakeGeneration
from thothy_ai.engine.api import FinishReason, GenerationRequest, GenerationResult
from thothy_ai.engine.api.errors import EngineLostError

AWAY_SECONDS = 0.1


class MortalEngine:
    """Nothing ends before the first death, which waits until `in_flight` requests are running."""

    def __init__(self, in_flight: int) -> None:
        self.in_flight = in_flight
        self.session_id = str(uuid4())
        self.back_at = 0.0
        self.running: dict[str, Mortal] = {}
        self.deaths: list[list[str]] = []
        self.alone: list[str] = []  # prompts that began while nothing else ran
        self.lock = threading.Lock()

    def client(self) -> FakeClient:
        return MortalClient(self)

    @property
    def up(self) -> bool:
        return time.monotonic() >= self.back_at

    def admit(self, generation: Mortal) -> None:
        with self.lock:
            if not self.running:
                self.alone.append(generation.prompt)
            self.running[generation.id] = generation

    def leave(self, generation: Mortal) -> None:
        with self.lock:
            self.running.pop(generation.id, None)

    def may_end(self, generation: Mortal) -> bool:
        is_full = generation.kills and len(self.running) >= self.in_flight
        return is_full or bool(self.deaths) or generation.lost.is_set()

    def die(self) -> None:
        with self.lock:
            self.deaths.append([generation.prompt for generation in self.running.values()])
            for generation in self.running.values():
                generation.lost.set()
            self.running.clear()
            self.session_id = str(uuid4())
            self.back_at = time.monotonic() + AWAY_SECONDS


class Mortal(FakeGeneration):
    def __init__(self, request: GenerationRequest, client: MortalClient) -> None:
        super().__init__(request, client)
        self.prompt = request.messages[0].content
        self.kills = self.prompt.startswith("kill")
        self.lost = threading.Event()
        self._engine = client.engine

    async def result(self) -> GenerationResult:
        try:
            while not self._engine.may_end(self):  # noqa: ASYNC110 - clients live on two loops
                await asyncio.sleep(0.01)
            if not self.lost.is_set() and self.kills:
                self._engine.die()
            await asyncio.sleep(0)
            if self.lost.is_set():
                raise EngineLostError("it died")
            return self._finished(json.dumps({"echo": self.prompt.partition("\n")[0][:100]}), FinishReason.STOP)
        finally:
            self._engine.leave(self)


class MortalClient(FakeClient):
    def __init__(self, engine: MortalEngine) -> None:
        self.engine = engine
        super().__init__()

    @property
    def session_id(self) -> str:
        return self.engine.session_id

    @session_id.setter
    def session_id(self, _: str) -> None:
        """Its lives are the engine's."""

    @property
    def up(self) -> bool:
        return self.engine.up

    @up.setter
    def up(self, _: bool) -> None:
        """As above."""

    async def submit(self, request: GenerationRequest) -> FakeGeneration:
        self._reach()
        generation = Mortal(request, self)
        self.engine.admit(generation)
        return generation
