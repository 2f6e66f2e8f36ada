"""A client's requests in flight: a handle per request, and the registry that receives their outputs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

from thothy_ai.engine.api import Delta, GenerationRequest, GenerationResult, Usage
from thothy_ai.engine.api.backend import Failure, Output
from thothy_ai.engine.api.errors import EngineError, InvalidRequestError

Control = Callable[[str], Awaitable[None]]  # tells the engine something about the request with this id


class Generation:
    """One request in flight. Iterate over it for its deltas (if it streams), await `result()` for the whole text."""

    def __init__(
        self, request_id: str, abort: Control, stream: Control, report_after: int = 0, *, report_again: bool = False
    ) -> None:
        self.id = request_id
        self._abort = abort
        self._stream = stream
        self._deltas: list[Delta] = []  # arrived since the last batch
        self._arrival: asyncio.Future[None] | None = None  # of a delta or the end; costs half of an `Event`
        self.usage: Usage | None = None  # once it has ended; None if it never ran or was lost
        self._done: asyncio.Future[GenerationResult] = asyncio.get_running_loop().create_future()
        # A failure that is never awaited counts as retrieved, so that asyncio does not log it.
        self._done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._early = _Early(report_after, again=report_again)

    async def early_text(self) -> str:
        """Wait until the output has `report_after` tokens, and return its text by then; the whole text if it ends
        before. Raises as `result` does.
        """
        return await self.text_beyond(0)

    async def text_beyond(self, characters: int) -> str:
        """Wait for the next report with a text longer than `characters`, and return that text; the whole text once it
        has ended. Raises as `result` does.
        """
        while not self._done.done():
            if self._early.reached and len(self._early.text) > characters:
                return self._early.text
            either: tuple[asyncio.Future[Any], ...] = (self._done, self._early.grown())
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._early.reached and not characters:
            return self._early.text
        return (await self.result()).text

    async def result(self) -> GenerationResult:
        """Wait for the end; raises the EngineError it failed with, EngineLostError if the connection broke."""
        return await asyncio.shield(self._done)

    async def abort(self) -> None:
        """Ask the engine to end it early; `result()` then has ABORTED and the text so far. No effect at the end."""
        if not self._done.done():
            await self._abort(self.id)

    async def stream(self) -> None:
        """Have the engine send deltas from now on, the first with all the text that was not sent yet."""
        if not self._done.done():
            await self._stream(self.id)

    async def __aiter__(self) -> AsyncIterator[Delta]:
        async for deltas in self.batches():
            for delta in deltas:
                yield delta

    async def batches(self) -> AsyncIterator[Sequence[Delta]]:
        """Wait for deltas, and yield all that have arrived since the last batch; each delta is in one batch. Only one
        consumer can wait at a time.
        """
        while self._deltas or not self._done.done():
            if not self._deltas:
                self._arrival = asyncio.get_running_loop().create_future()
                await self._arrival
            deltas, self._deltas = self._deltas, []
            if deltas:
                yield deltas
        await self.result()  # raises: a failed generation must not look like a short one

    def deliver(self, output: Output) -> None:
        """Take an output from the engine; called by the client that owns this."""
        if self._done.done():
            return
        match output:
            case Delta():
                self._deltas.append(output)
                self._wake()
                self._early.add(output)
                return
            case GenerationResult():
                self._done.set_result(output)
            case Failure():
                self._done.set_exception(output.error)
        self.usage = output.usage
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


class _Early:
    """Collects the first choice's text from its deltas until it has `report_after` tokens or, with `again`, beyond.
    Used on the loop in which it is made.
    """

    def __init__(self, report_after: int, *, again: bool) -> None:
        self._report_after, self._again, self._tokens = report_after, again, 0
        self.text = ""
        self._grown: asyncio.Future[None] | None = None

    @property
    def reached(self) -> bool:
        """Whether it has that many tokens."""
        return 0 < self._report_after <= self._tokens

    def grown(self) -> asyncio.Future[None]:
        """Done with the next report."""
        if self._grown is None or self._grown.done():
            self._grown = asyncio.get_running_loop().create_future()
        return self._grown

    def add(self, delta: Delta) -> None:
        if not self._report_after or delta.choice or (self.reached and not self._again):
            return
        self.text += delta.text
        self._tokens += len(delta.token_ids)
        if self.reached and self._grown is not None and not self._grown.done():
            self._grown.set_result(None)


class Generations:
    """Owns the generations of one client, by id."""

    def __init__(self) -> None:
        self._open: dict[str, Generation] = {}

    def add(self, request: GenerationRequest, abort: Control, stream: Control) -> Generation:
        """A handle for a new request; InvalidRequestError if one with its id is in flight."""
        if request.id in self._open:
            raise InvalidRequestError(f"a request with id {request.id!r} is in flight")
        generation = self._open[request.id] = Generation(
            request.id, abort, stream, request.report_after, report_again=request.report_again
        )
        return generation

    def deliver(self, outputs: Iterable[Output]) -> None:
        """Pass outputs on to their generations; late ones, whose generation has ended, are dropped."""
        for output in outputs:
            ends = not isinstance(output, Delta)
            generation = self._open.pop(output.id, None) if ends else self._open.get(output.id)
            if generation is not None:
                generation.deliver(output)

    def fail_all(self, error: EngineError) -> None:
        """Fail every generation in flight."""
        self.deliver([Failure(request_id, error) for request_id in self._open])

    @property
    def open_ids(self) -> tuple[str, ...]:
        """Ids of the generations in flight."""
        return tuple(self._open)
