"""One client of the engine's server: reads its frames, sends it outputs, and aborts what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from thothy_ai.engine.api import AbandonedStats, Delta, GenerationResult
from thothy_ai.engine.backend import Backend, Failure, Output
from thothy_ai.engine.errors import EngineError, ProtocolError
from thothy_ai.engine.serving.orphans import OrphanCosts
from thothy_ai.engine.serving.outbox import Outbox
from thothy_ai.engine.serving.protocol import (
    VERSION,
    Abort,
    Answer,
    Ask,
    Fault,
    Frame,
    FrameBuffer,
    Hello,
    Outputs,
    Question,
    Submit,
    decode,
    encode,
)
from thothy_ai.engine.serving.wire import Fields, fields_of, orphans_fields, read_request, stats_fields

log = logging.getLogger(__name__)

_CHUNK = 1 << 18
_HELLO_SECONDS = 10.0
_REMEMBERED = 10_000  # results that a client may not have kept yet: more than a worker has in flight


class Connection:
    """Owns one client's requests. Ids are its own: two clients may use the same ones, also across a reconnect."""

    def __init__(
        self,
        number: int,
        backend: Backend,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        orphans: OrphanCosts,
        on_settled: Callable[[], None],
    ) -> None:
        self._prefix = f"{number}."
        self._backend, self._reader, self._writer, self._on_settled = backend, reader, writer, on_settled
        self._orphans = orphans
        self._loop = asyncio.get_running_loop()
        self._open: set[str] = set()
        self._told: deque[tuple[str, float]] = deque(maxlen=_REMEMBERED)  # what the last results cost
        self._left = False
        self._outbox = Outbox()
        self._wake = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Requests without a result."""
        return len(self._open)

    @property
    def settled(self) -> bool:
        """Nothing is in flight and nothing waits to be sent, or nobody is left to send it to."""
        return self._left or (not self._open and not self._outbox)

    async def serve(self) -> None:
        """Talk until the client leaves or breaks the protocol; then abort what it had in flight."""
        sending = asyncio.create_task(self._send_outputs())
        try:
            await self._converse()
        except (OSError, TimeoutError) as error:
            log.debug("a client vanished: %s", error)
        finally:
            sending.cancel()
            self._leave_behind()
            self._on_settled()
            await self._hang_up()

    def _leave_behind(self) -> None:
        """Abort what is in flight, and remember what the last results cost: the client may not have kept them."""
        self._left = True
        for request_id in self._open:
            self._backend.abort(self._prefix + request_id)
        for request_id, seconds in self._told:
            self._orphans.add(request_id, seconds)
        self._told.clear()

    async def _converse(self) -> None:
        try:
            frames = self._frames()
            async with asyncio.timeout(_HELLO_SECONDS):
                _check_hello(await anext(frames, None))
            self._writer.write(encode(Hello()))
            async for frame in frames:
                self._handle(frame)
        except ProtocolError as error:
            log.warning("a client broke the protocol: %s", error)
            self._writer.write(encode(Fault(error)))

    async def _frames(self) -> AsyncIterator[Frame]:
        """Frames as they come; a client that does not read what it is sent is not read from either."""
        buffer = FrameBuffer()
        while chunk := await self._reader.read(_CHUNK):
            for payload in buffer.feed(chunk):
                yield decode(payload)
            await self._writer.drain()

    def _handle(self, frame: Frame) -> None:
        match frame:
            case Submit(id_, fields):
                self._submit(id_, fields)
            case Abort(id_):
                self._backend.abort(self._prefix + id_)
            case Ask(number, question):
                self._writer.write(encode(Answer(number, self._answer(question))))
            case _:
                raise ProtocolError(f"a client does not send {type(frame).__name__}")

    def _submit(self, request_id: str, fields: Fields) -> None:
        if request_id in self._open:
            raise ProtocolError(f"a request with id {request_id!r} is in flight")
        self._open.add(request_id)
        try:
            request = replace(read_request(fields), id=self._prefix + request_id)
            self._backend.submit(request, self._sink)
        except EngineError as error:
            self._deliver([Failure(self._prefix + request_id, error)])

    def _answer(self, question: Question) -> Fields:
        match question:
            case Question.INFO:
                return fields_of(self._backend.info())
            case Question.STATS:
                abandoned = AbandonedStats(len(self._orphans), self._orphans.dropped)
                return stats_fields(replace(self._backend.stats(), abandoned=abandoned))
            case Question.ORPHANS:
                return orphans_fields(self._orphans.take(self._backend.info().session_id))
            case Question.DRAIN:
                self._backend.drain()
                return {}

    def _sink(self, outputs: list[Output]) -> None:
        """Called from the backend's thread; a closed loop means that nobody is left to tell."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver, outputs)

    def _deliver(self, outputs: list[Output]) -> None:
        for output in outputs:
            request_id = output.id.removeprefix(self._prefix)
            if request_id not in self._open:
                continue
            if not isinstance(output, Delta):
                self._open.discard(request_id)
            if isinstance(output, GenerationResult):
                self._book(request_id, output.usage.compute_seconds)
            if not self._left:
                self._outbox.add(replace(output, id=request_id))
        self._wake.set()

    def _book(self, request_id: str, seconds: float) -> None:
        if self._left:
            self._orphans.add(request_id, seconds)
        else:
            self._told.append((request_id, seconds))

    async def _send_outputs(self) -> None:
        """Ends with the connection; a client that can't be sent to must not wait for ever."""
        try:
            while await self._wake.wait():
                self._wake.clear()
                for batch in self._outbox.take():
                    self._writer.write(encode(Outputs(batch)))
                    await self._writer.drain()
                if self.settled:
                    self._on_settled()
        except ConnectionError:
            log.debug("a client vanished while it was sent to")
        except Exception:
            log.exception("outputs cannot be sent; hanging up")
            self._writer.transport.abort()

    async def _hang_up(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_HELLO_SECONDS):
                await self._writer.wait_closed()
        self._writer.transport.abort()


def _check_hello(frame: Frame | None) -> None:
    match frame:
        case None:
            raise ConnectionResetError("it left without a hello")
        case Hello(version) if version == VERSION:
            return
        case Hello(version):
            raise ProtocolError(f"the client speaks version {version} of the protocol, this engine {VERSION}")
        case _:
            raise ProtocolError("no hello came")
