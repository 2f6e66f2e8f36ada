"""One client of the engine's server: reads its frames, sends outputs, aborts its requests when it disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from thothy_ai.engine.api import MAX_NAME, AdapterInfo, Delta, GenerationResult
from thothy_ai.engine.api.backend import Backend, Failure, Output
from thothy_ai.engine.api.errors import EngineAuthenticationError, EngineError, ProtocolError, as_engine_error
from thothy_ai.engine.api.identity import printable
from thothy_ai.engine.serving.abandoned import AbandonedUsageStore
from thothy_ai.engine.serving.outbox import Outbox
from thothy_ai.engine.wire.codec import FrameBuffer, pack
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

_CHUNK = 1 << 18
_TIMEOUT_SECONDS = 10.0  # for a hello to arrive, and for the last frames to be sent
_LINGER_SECONDS = 3.0  # for the client to close afterwards; less than a supervisor's grace period
_MAX_REPORTED = 10_000  # results that a client may not have recorded yet; more than a worker has in flight


@dataclass(frozen=True, slots=True)
class Shared:
    """State shared by the connections of one server. `token` None: clients need no token."""

    backend: Backend
    abandoned: AbandonedUsageStore
    on_settled: Callable[[], None]
    token: str | None = field(default=None, repr=False)


class Connection:
    """Owns one client's requests. Ids are per connection, so that clients, or a reconnected one, can reuse them."""

    def __init__(self, number: int, shared: Shared, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._prefix = f"{number}."
        self._backend, self._abandoned, self._on_settled = shared.backend, shared.abandoned, shared.on_settled
        self._token = shared.token
        self._reader, self._writer = reader, writer
        self._loop = asyncio.get_running_loop()
        self._open: set[str] = set()
        self._reported: deque[tuple[str, float]] = deque(maxlen=_MAX_REPORTED)  # seconds of the last results sent
        self._closed = False
        self._outbox = Outbox()
        self._unsent = asyncio.Event()  # from an output's arrival until the last one is written

    @property
    def in_flight(self) -> int:
        return len(self._open)

    @property
    def settled(self) -> bool:
        """Whether no request is in flight and all outputs are written, or the client has disconnected."""
        return self._closed or (not self._open and not self._unsent.is_set())

    async def serve(self) -> None:
        """Serve the client until it disconnects or violates the protocol; then abort what it has in flight."""
        sending = asyncio.create_task(self._send_outputs())
        try:
            frames = self._frames()
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                _check_hello(await anext(frames, None), self._token)
            self._writer.write(encode(Hello()))
            async for frame in frames:
                self._handle(frame)
        except (ProtocolError, EngineAuthenticationError) as error:
            log.warning("closing a client's connection: %s", error)
            self._writer.write(encode(Fault(error)))
        except (OSError, TimeoutError) as error:
            log.debug("client disconnected: %s", error)
        finally:
            sending.cancel()
            self._closed = True
            for request_id in self._open:
                self._backend.abort(self._prefix + request_id)
            for request_id, seconds in self._reported:  # the client may not have recorded them
                self._abandoned.add(request_id, seconds)
            self._on_settled()
            await self._close()

    async def _frames(self) -> AsyncIterator[Frame]:
        """Yield frames as they arrive; reading pauses while the client does not read its outputs."""
        buffer = FrameBuffer()
        while chunk := await self._reader.read(_CHUNK):
            for payload in buffer.feed(chunk):
                yield decode(payload)
            await self._writer.drain()

    def _handle(self, frame: Frame) -> None:
        match frame:
            case Submit(id_) if id_ in self._open:
                raise ProtocolError(f"a request with id {id_!r} is in flight")
            case Submit(id_) if len(id_) > MAX_NAME:  # an answer would have to repeat it
                raise ProtocolError(f"a request's id has {len(id_):,} characters; {MAX_NAME:,} are possible")
            case Submit(id_):
                self._open.add(id_)
                try:
                    self._backend.submit(frame.request(self._prefix), self._sink)
                except EngineError as error:
                    self._deliver([Failure(self._prefix + id_, error)])
            case Abort(id_):
                self._backend.abort(self._prefix + id_)
            case Stream(id_):
                self._backend.stream(self._prefix + id_)
            case Ask(number, question):
                self._writer.write(encode(Reply(number, pack(self._answer(question)))))
            case LoadAdapter(number, name, folder):
                self._reply_when_done(number, self._backend.load_adapter(name, folder))
            case UnloadAdapter(number, name):
                self._reply_when_done(number, self._backend.unload_adapter(name))
            case _:
                raise ProtocolError(f"a client does not send {type(frame).__name__}")

    def _answer(self, question: Question) -> object:
        match question:
            case Question.INFO:
                return self._backend.info()
            case Question.STATS:
                return replace(self._backend.stats(), abandoned=self._abandoned.stats)
            case Question.VOCABULARY:
                return self._backend.vocabulary()
            case Question.ABANDONED_USAGE:
                return self._abandoned.take(self._backend.info().session_id)
            case Question.ADAPTERS:
                return self._backend.adapters()
            case Question.STOP_ACCEPTING:
                self._backend.stop_accepting()
                return {}

    def _reply_when_done(self, number: int, change: Future[AdapterInfo] | Future[None]) -> None:
        """Answer once an adapter is loaded or unloaded, unless the client has disconnected by then."""

        def reply(done: Future[AdapterInfo] | Future[None]) -> None:
            error = done.exception()
            if error is None:
                frame: Frame = Reply(number, pack(done.result() or {}))
            else:
                frame = Refusal(number, as_engine_error(error) if isinstance(error, Exception) else EngineError())
            if not self._closed:
                self._writer.write(encode(frame))

        def done(finished: Future[AdapterInfo] | Future[None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(reply, finished)

        change.add_done_callback(done)

    def _sink(self, outputs: list[Output]) -> None:
        """Take outputs on the backend's thread; once the loop is closed, they are dropped."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver, outputs)

    def _deliver(self, outputs: list[Output]) -> None:
        for output in outputs:
            mine = replace(output, id=output.id.removeprefix(self._prefix))
            if mine.id not in self._open:
                continue
            if not isinstance(mine, Delta):
                self._open.discard(mine.id)
                seconds = 0.0 if mine.usage is None else mine.usage.compute_seconds
                if self._closed:
                    self._abandoned.add(mine.id, seconds)
                else:
                    self._reported.append((mine.id, seconds))
            if not self._closed:
                self._outbox.add(mine)
        self._unsent.set()

    async def _send_outputs(self) -> None:
        """Send outputs until the connection ends. If they cannot be sent, end it, or the client would wait forever."""
        try:
            while await self._unsent.wait():
                for batch in self._outbox.take():
                    for data in _frames_of(batch):
                        self._writer.write(data)
                        await self._writer.drain()
                if not self._outbox:
                    self._unsent.clear()
                if self.settled:
                    self._on_settled()
        except ConnectionError:
            log.debug("client disconnected while outputs were sent")
        except Exception:
            log.exception("outputs cannot be sent; closing the connection")
            self._writer.transport.abort()

    async def _close(self) -> None:
        """Send what is still buffered, then let the client close first; all within `_TIMEOUT_SECONDS`.

        If this side closed first, a client that writes before it reads would lose what it has received: over TCP by a
        reset (RFC 9112, section 9.6), over a Unix socket by asyncio, which discards it after a failed write.
        """
        try:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    self._writer.transport.set_write_buffer_limits(0)  # so that `drain` waits until all is sent
                    await self._writer.drain()
                    self._writer.write_eof()
                    async with asyncio.timeout(_LINGER_SECONDS):
                        while await self._reader.read(_CHUNK):
                            pass
        finally:
            self._writer.transport.abort()


def _frames_of(outputs: Sequence[Output]) -> Iterator[bytes]:
    """The outputs in as many frames as needed. A result too large for a frame becomes a failure, so that the others
    still arrive. Characters that UTF-8 cannot encode are escaped.
    """
    parts: tuple[Sequence[Output], ...]
    try:
        yield encode(Outputs.of(outputs))
    except ProtocolError as error:
        match outputs:
            case [Delta() as delta] if len(delta.text) <= 1 and len(delta.token_ids) <= 1:
                if (escaped := printable(delta.text)) == delta.text:
                    raise
                parts = ([replace(delta, text=escaped)],)
            case [Delta() as delta]:
                text, tokens = len(delta.text) // 2, len(delta.token_ids) // 2
                first = replace(
                    delta, text=delta.text[:text], token_ids=delta.token_ids[:tokens], logprobs=delta.logprobs[:tokens]
                )
                rest = (delta.text[text:], delta.token_ids[tokens:], delta.choice, delta.logprobs[tokens:])
                parts = ([first], [Delta(delta.id, *rest)])
            case [GenerationResult() | Failure() as end]:
                parts = ([Failure(end.id, EngineError(f"the result cannot be sent: {error}"), end.usage)],)
            case _:
                parts = (outputs[: len(outputs) // 2], outputs[len(outputs) // 2 :])
    else:
        return
    for part in parts:
        yield from _frames_of(part)


def _check_hello(frame: Frame | None, token: str | None) -> None:
    """ProtocolError unless the frame is a hello; EngineAuthenticationError unless it has the token, if required."""
    match frame:
        case None:
            raise ConnectionResetError("it closed the connection without a hello")
        case Hello(version) if version != VERSION:
            raise ProtocolError(f"the client speaks version {version} of the protocol, this engine {VERSION}")
        case Hello(token=given):
            if token is None:
                return
            if given is None:
                raise EngineAuthenticationError("this engine requires a token: set THOTHY_ENGINE_TOKEN")
            if not hmac.compare_digest(given, token_bytes(token)):
                raise EngineAuthenticationError("wrong token: THOTHY_ENGINE_TOKEN is not the engine's")
        case _:
            raise ProtocolError("the first frame is not a hello")
