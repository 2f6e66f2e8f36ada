"""The client of an engine process: one connection, many requests in flight, reconnects with backoff."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from thothy_ai.engine.api import AbandonedUsage, AdapterInfo, EngineInfo, EngineStats, GenerationRequest
from thothy_ai.engine.api.errors import (
    ConnectionLostError,
    EngineAuthenticationError,
    EngineError,
    InvalidRequestError,
    ProtocolError,
)
from thothy_ai.engine.api.inflight_log import AdmissionFile
from thothy_ai.engine.serving.address import Address, TcpAddress, UnixAddress, admissions_path
from thothy_ai.engine.serving.generation import Generation, Generations
from thothy_ai.engine.wire.codec import FrameBuffer, Raw, unpack
from thothy_ai.engine.wire.protocol import (
    VERSION,
    Abort,
    Ask,
    Fault,
    Frame,
    Hello,
    LoadAdapter,
    Outputs,
    Question,
    Refusal,
    Reply,
    Stream,
    Submit,
    UnloadAdapter,
    decode,
    encode,
    token_bytes,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_CHUNK = 1 << 18
_HELLO_SECONDS = 10.0
_MIN_PAUSE, _MAX_PAUSE = 0.05, 2.0


class SocketEngineClient:
    """Implements `EngineClient` over the protocol. Owns its connection and the requests in flight on it."""

    def __init__(self, address: Address, token: str | None = None) -> None:
        """The token goes over TCP only: a Unix socket needs none."""
        self._address = address
        self._hello = Hello(token=token_bytes(token) if token and isinstance(address, TcpAddress) else None)
        self._generations = Generations()
        self._replies: dict[int, asyncio.Future[Raw]] = {}
        self._numbers = itertools.count()
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self.on_lost: Callable[[], None] = lambda: None
        self._admissions: dict[str, AdmissionFile] = {}  # of this engine session and of the one before
        self._reason: ConnectionLostError = ConnectionLostError(f"not connected to the engine at {address}")

    @property
    def connected(self) -> bool:
        """Whether the connection is open and both sides have said hello."""
        return self._writer is not None

    async def start(self) -> None:
        """Start connecting, and wait for the first attempt's outcome."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_connected(), name="engine-client")
        await self._tried.wait()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._reason = ConnectionLostError("the client was closed")
        self._disconnected()
        self._tried.set()

    async def info(self) -> EngineInfo:
        info = await self._ask(Question.INFO, EngineInfo)
        path, session_id = admissions_path(self._address), info.session_id
        if path is None or session_id in self._admissions:
            return info
        # While the engine runs: its successor replaces the file. Requests may still be in flight at the last one.
        if (file := AdmissionFile.open(path, session_id)) is not None:
            last = list(self._admissions.items())[-1:]
            self._admissions = dict(last) | {session_id: file}
        return info

    async def stats(self) -> EngineStats:
        return await self._ask(Question.STATS, EngineStats)

    async def vocabulary(self) -> tuple[bytes, ...]:
        return await self._ask(Question.VOCABULARY, tuple[bytes, ...])

    async def take_abandoned_usage(self) -> AbandonedUsage:
        return await self._ask(Question.ABANDONED_USAGE, AbandonedUsage)

    async def adapters(self) -> tuple[AdapterInfo, ...]:
        return await self._ask(Question.ADAPTERS, tuple[AdapterInfo, ...])

    async def load_adapter(self, name: str, folder: str) -> AdapterInfo:
        return await self._answer_to(lambda number: LoadAdapter(number, name, folder), AdapterInfo)

    async def unload_adapter(self, name: str) -> None:
        await self._answer_to(lambda number: UnloadAdapter(number, name), dict)

    async def stop_accepting(self) -> None:
        await self._ask(Question.STOP_ACCEPTING, dict)

    def may_have_begun(self, session_id: str, request_ids: Sequence[str]) -> bool:
        """Ask the file that the engine has left; True if there is none."""
        file = self._admissions.get(session_id)
        return file is None or bool(file.begun(request_ids))

    async def submit(self, request: GenerationRequest) -> Generation:
        """Send a request; waits while the socket's buffer is full."""
        try:
            data = encode(Submit.of(request))
        except ProtocolError as error:
            raise InvalidRequestError(str(error)) from error
        if self._writer is None:
            raise self._lost()
        generation = self._generations.add(
            request,
            abort=lambda id_: self._send(encode(Abort(id_))),
            stream=lambda id_: self._send(encode(Stream(id_))),
        )
        try:
            await self._send(data)
        except asyncio.CancelledError:
            if self._writer is not None:  # the caller has no handle: the result would have no recipient
                self._writer.write(encode(Abort(request.id)))
            raise
        return generation

    async def _ask(self, question: Question, kind: type[T]) -> T:
        return await self._answer_to(lambda number: Ask(number, question), kind)

    async def _answer_to(self, asked: Callable[[int], Frame], kind: type[T]) -> T:
        """The engine's answer to a frame of a number; ProtocolError if it is malformed. Raises its refusal."""
        if self._writer is None:
            raise self._lost()
        number = next(self._numbers)
        reply: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        try:
            await self._send(encode(asked(number)))
            return unpack(kind, await reply)
        finally:
            self._replies.pop(number, None)

    async def _send(self, data: bytes) -> None:
        """Write a frame. If the connection breaks meanwhile, the awaited result or reply fails with it."""
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
            except Exception as error:  # noqa: BLE001  whatever ended this connection, another is opened
                refused, says = isinstance(error, EngineAuthenticationError), str(error) or type(error).__name__
                kind = EngineAuthenticationError if refused else ConnectionLostError
                self._reason = kind(f"not connected to the engine at {self._address}: {says}")
                if self.connected or not self._tried.is_set():
                    log.warning("engine client: %s", self._reason)
            pause = _MIN_PAUSE if self.connected else min(pause * 2, _MAX_PAUSE)
            self._disconnected()
            self._tried.set()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads reconnects; not a secret

    async def _connection(self) -> None:
        """Run one connection from its hello to its end; raises the error that ended it."""
        async with asyncio.timeout(_HELLO_SECONDS):
            if isinstance(self._address, UnixAddress):
                reader, writer = await asyncio.open_unix_connection(self._address.path)
            else:
                reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
        try:
            frames = FrameBuffer()
            writer.write(encode(self._hello))
            async with asyncio.timeout(_HELLO_SECONDS):
                payloads = await _greeting(reader, frames)
            self._writer = writer
            self._tried.set()
            while True:
                for payload in payloads:
                    self._take(decode(payload))
                payloads = frames.feed(await _read(reader))
        finally:
            writer.transport.abort()  # what is still buffered no longer matters
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _take(self, frame: Frame) -> None:
        match frame:
            case Outputs():
                self._generations.deliver(frame.outputs)
            case Reply(number, answer):
                reply = self._replies.pop(number, None)
                if reply is not None and not reply.done():
                    reply.set_result(answer)
            case Refusal(number, error):
                reply = self._replies.pop(number, None)
                if reply is not None and not reply.done():
                    reply.set_exception(error)
            case Fault(error):
                raise error
            case _:
                raise ProtocolError(f"an engine does not send {type(frame).__name__}")

    def _disconnected(self) -> None:
        if self.connected:
            self.on_lost()
        self._writer = None
        self._generations.fail_all(self._lost())
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(self._lost())
        self._replies.clear()

    def _lost(self) -> EngineError:
        """A new error each time: one that is raised twice accumulates tracebacks."""
        return type(self._reason)(str(self._reason))


async def _greeting(reader: asyncio.StreamReader, frames: FrameBuffer) -> list[bytes]:
    """Wait for the server's hello; returns the payloads that arrived with it."""
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
            raise ProtocolError("the first frame is not a hello")


async def _read(reader: asyncio.StreamReader) -> bytes:
    chunk = await reader.read(_CHUNK)
    if not chunk:
        raise ConnectionLostError("the engine closed the connection")
    return chunk
