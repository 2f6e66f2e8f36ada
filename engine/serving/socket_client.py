"""The client of an engine process: one connection, many requests in flight, reconnecting with backoff."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Callable

from thothy_ai.engine.api import EngineInfo, EngineStats, GenerationRequest, Orphans
from thothy_ai.engine.errors import EngineError, EngineLostError, InvalidRequestError, ProtocolError
from thothy_ai.engine.serving.address import Address, UnixAddress
from thothy_ai.engine.serving.generation import Generation, Generations
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
from thothy_ai.engine.serving.wire import Fields, read_info, read_orphans, read_stats, request_fields

log = logging.getLogger(__name__)

_CHUNK = 1 << 18
_HELLO_SECONDS = 10.0
_MIN_PAUSE, _MAX_PAUSE = 0.05, 2.0


class SocketEngineClient:
    """Implements `EngineClient` over the protocol. Owns its connection and the requests in flight on it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._generations = Generations()
        self._answers: dict[int, asyncio.Future[Fields]] = {}
        self._numbers = itertools.count()
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self.on_lost: Callable[[], None] = lambda: None
        self._trouble: EngineError = EngineLostError(f"not connected to the engine at {address}")

    @property
    def connected(self) -> bool:
        """Whether hellos were exchanged and the connection stands."""
        return self._writer is not None

    async def start(self) -> None:
        """Start connecting, and wait for the first attempt's outcome."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_connected(), name="engine-client")
        await self._tried.wait()

    async def close(self) -> None:
        """Disconnect and stay so."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._trouble = EngineLostError("the client was closed")
        self._disconnected()
        self._tried.set()

    async def info(self) -> EngineInfo:
        """Ask who the engine is."""
        return read_info(await self._ask(Question.INFO))

    async def stats(self) -> EngineStats:
        """Ask for gauges and counters."""
        return read_stats(await self._ask(Question.STATS))

    async def orphans(self) -> Orphans:
        """Ask for what requests of vanished clients cost."""
        return read_orphans(await self._ask(Question.ORPHANS))

    async def drain(self) -> None:
        """Have the engine take nothing new."""
        await self._ask(Question.DRAIN)

    async def submit(self, request: GenerationRequest) -> Generation:
        """Send a request; waits while the engine does not read."""
        try:
            data = encode(Submit(request.id, request_fields(request)))
        except ProtocolError as error:
            raise InvalidRequestError(str(error)) from error
        if self._writer is None:
            raise self._lost()
        generation = self._generations.add(request, self._abort)
        try:
            await self._send(data)
        except asyncio.CancelledError:
            if self._writer is not None:  # nobody has the handle: the engine is not to work for nobody
                self._writer.write(encode(Abort(request.id)))
            raise
        return generation

    async def _abort(self, request_id: str) -> None:
        await self._send(encode(Abort(request_id)))

    async def _ask(self, question: Question) -> Fields:
        if self._writer is None:
            raise self._lost()
        number = next(self._numbers)
        answer: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await self._send(encode(Ask(number, question)))
            return await answer
        finally:
            self._answers.pop(number, None)

    async def _send(self, data: bytes) -> None:
        """Write a frame. If the connection dies meanwhile, whoever waits for the outcome is told."""
        if self._writer is None:
            return
        self._writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    # ---- the connection's task

    async def _keep_connected(self) -> None:
        pause = _MIN_PAUSE
        while True:
            try:
                await self._connection()
            except Exception as error:  # noqa: BLE001  whatever ended this connection, the next one is tried
                self._note(error)
            pause = _MIN_PAUSE if self.connected else min(pause * 2, _MAX_PAUSE)
            self._disconnected()
            self._tried.set()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads clients, keeps no secret

    async def _connection(self) -> None:
        """One connection from its hello to its end; raises why it ended."""
        async with asyncio.timeout(_HELLO_SECONDS):
            reader, writer = await self._open()
        try:
            frames = FrameBuffer()
            writer.write(encode(Hello()))
            async with asyncio.timeout(_HELLO_SECONDS):
                early = await _greeting(reader, frames)
            self._writer = writer
            self._tried.set()
            await self._listen(reader, frames, early)
        finally:
            writer.transport.abort()  # nothing that waits to be sent matters now
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._address, UnixAddress):
            return await asyncio.open_unix_connection(self._address.path)
        return await asyncio.open_connection(self._address.host, self._address.port)

    async def _listen(self, reader: asyncio.StreamReader, frames: FrameBuffer, early: list[bytes]) -> None:
        payloads = early
        while True:
            for payload in payloads:
                self._take(decode(payload))
            payloads = frames.feed(await _read(reader))

    def _take(self, frame: Frame) -> None:
        match frame:
            case Outputs(outputs):
                self._generations.deliver(outputs)
            case Answer(number, fields):
                answer = self._answers.pop(number, None)
                if answer is not None and not answer.done():
                    answer.set_result(fields)
            case Fault(error):
                raise error
            case _:
                raise ProtocolError(f"an engine does not send {type(frame).__name__}")

    def _note(self, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        self._trouble = EngineLostError(f"the engine at {self._address} is away: {reason}")
        if self.connected or not self._tried.is_set():
            log.warning("%s", self._trouble)

    def _disconnected(self) -> None:
        if self.connected:
            self.on_lost()
        self._writer = None
        self._generations.fail_all(self._lost())
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._lost())
        self._answers.clear()

    def _lost(self) -> EngineError:
        """A fresh error each time: one that is raised twice gathers tracebacks."""
        return EngineLostError(str(self._trouble))


async def _greeting(reader: asyncio.StreamReader, frames: FrameBuffer) -> list[bytes]:
    """Wait for the server's hello; returns payloads that came right behind it."""
    payloads: list[bytes] = []
    while not payloads:
        payloads = frames.feed(await _read(reader))
    match decode(payloads[0]):
        case Hello(version) if version == VERSION:
            return payloads[1:]
        case Hello(version):
            raise ProtocolError(f"the engine speaks version {version} of the protocol, this client {VERSION}")
        case Fault(error):
            raise error
        case _:
            raise ProtocolError("no hello came")


async def _read(reader: asyncio.StreamReader) -> bytes:
    chunk = await reader.read(_CHUNK)
    if not chunk:
        raise EngineLostError("it closed the connection")
    return chunk
