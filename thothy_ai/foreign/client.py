"""`ForeignEngineClient`: `EngineClient` over any server with OpenAI's API.

A request is a stream for each of its texts. A busy server (429, 503) is asked again after growing pauses, while the
request counts as in flight. A silent or unreachable server loses the request, and the queue repeats it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from thothy_ai.engine.api import (
    AbandonedUsage,
    AdapterInfo,
    AdapterStats,
    CallDelta,
    Choice,
    CoreStats,
    Delta,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SchedulerStats,
    ToolCall,
    Usage,
)
from thothy_ai.engine.api.backend import Failure
from thothy_ai.engine.api.errors import (
    ConnectionLostError,
    EngineError,
    EngineLostError,
    EngineNotAcceptingError,
    InvalidRequestError,
    PromptTooLongError,
    UnknownAdapterError,
    as_engine_error,
)
from thothy_ai.engine.api.identity import printable
from thothy_ai.engine.api.messages import joined
from thothy_ai.engine.serving.client import Generation, Generations
from thothy_ai.foreign.abilities import Abilities, find_abilities
from thothy_ai.foreign.bodies import body_of, expected, path_of, wants_logprobs
from thothy_ai.foreign.declared import DeclaredEngine, plain_name
from thothy_ai.foreign.http import Answer, HttpServer
from thothy_ai.foreign.replies import BusyError, StreamedPiece, piece_of, refusal_of
from thothy_ai.foreign.shares import TokenShares

log = logging.getLogger(__name__)

ASK_SECONDS = 60.0  # per question about abilities; the server may be loading or full
LIST_SECONDS = 5.0  # for its list of models
MIN_PAUSE, MAX_PAUSE = 0.5, 30.0  # before a busy server is asked again
BUSY_SECONDS = 10.0  # of nothing but refusals, until the server counts as lost
PATIENCE_SECONDS = 300.0  # for a request that a busy server refuses
LIFE_SECONDS = 3600.0  # per request, at most
CHARACTERS_PER_TOKEN = 4.0  # until the server has said more
UNKNOWN = -1  # the id of every token: servers send texts


@dataclass(slots=True, eq=False)
class ForeignText:
    """One of the texts of a request, as far as it has arrived."""

    pieces: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[CallDelta] = field(default_factory=list)
    tokens: int = 0  # estimated, until its usage arrives
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None  # None: it was cut off
    prompt_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0  # of the server

    def choice(self, request: GenerationRequest, can: Abilities) -> Choice:
        mean = fmean(self.logprobs) if self.logprobs and wants_logprobs(request) else None
        text, reason = expected(request, can, "".join(self.pieces)), self.finish_reason or FinishReason.ABORTED
        calls = tuple(ToolCall(call.name, call.arguments) for call in joined(self.calls))
        thoughts = "".join(self.thoughts) if request.divided else ""
        return Choice(text, (UNKNOWN,) * self.tokens, reason, mean_logprob=mean, thoughts=thoughts, calls=calls)


class ForeignEngineClient:
    """Implements `EngineClient`. Its session begins with the client: other work of the server is unknown."""

    def __init__(self, url: str, key: str | None, declared: DeclaredEngine) -> None:
        """InvalidRequestError for a URL or a key that is none."""
        self._server, self._declared = HttpServer(url, key, declared.silence_seconds), declared
        self._generations = Generations()
        self._writing: dict[str, list[asyncio.Task[None]]] = {}  # the texts of each request in flight
        self._concluding: set[asyncio.Task[None]] = set()
        self._shares = TokenShares()
        self._core = CoreStats()
        self._held = 0  # requests that wait until the server takes more
        self._resume_at = self._refused_since = 0.0  # monotonic; 0: it takes requests
        self._characters, self._tokens = 10_000 * CHARACTERS_PER_TOKEN, 10_000.0
        self._learning: asyncio.Task[Abilities] | None = None
        self._info: EngineInfo | None = None
        self._adapters: dict[str, str] = {}  # the server's names by the names for jobs
        self._adapter_changes = 0
        self._ambiguous: set[str] = set()  # names shared by several adapters, already warned about
        self._session_id, self._began = str(uuid4()), time.time()
        self._accepting = True
        self._reason = ConnectionLostError(f"not connected to {url}")
        self.on_lost: Callable[[], None] = lambda: None

    @property
    def connected(self) -> bool:
        """Whether the server's abilities are known and it answered last time."""
        return self._info is not None

    async def start(self) -> None:
        """Begin to ask the server what it can do."""
        if self._learning is None or (self._learning.done() and not self.connected):
            self._learning = asyncio.create_task(self._learn())
            self._learning.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def info(self) -> EngineInfo:
        """Ask the server for its models, which also notices a lost server."""
        await self.start()
        if not self.connected:
            await self.abilities()
        if self._refused_since and time.monotonic() - self._refused_since > BUSY_SECONDS:
            if time.monotonic() < self._resume_at:
                raise ConnectionLostError(f"{self._server.url} takes no requests")
            self._refused_since = 0.0
        try:
            self._info = await self._described()
        except EngineError as error:
            self._lose(error)
            raise
        return self._info

    async def abilities(self) -> Abilities:
        """What the server can do. EngineLostError while that is not known."""
        await self.start()
        if self._learning is None:
            raise self._reason
        return await asyncio.shield(self._learning)

    async def stats(self) -> EngineStats:
        if not self.connected:
            raise self._lost()
        core = self._core.plus(busy_seconds=self._shares.busy_seconds)
        return EngineStats(
            SchedulerStats(running=sum(map(len, self._writing.values())) - self._held, waiting=self._held),
            core=core,
            adapters=AdapterStats(self._adapter_changes, loaded=len(self._adapters)),
        )

    async def adapters(self) -> tuple[AdapterInfo, ...]:
        return tuple(AdapterInfo(name, digest="", rank=0, base=self._model) for name in sorted(self._adapters))

    async def load_adapter(self, name: str, folder: str) -> AdapterInfo:  # noqa: ARG002 - the protocol's
        raise InvalidRequestError(f"{self._server.url} loads its adapters itself", "adapter")

    async def unload_adapter(self, name: str) -> None:  # noqa: ARG002 - the protocol's
        raise InvalidRequestError(f"{self._server.url} loads its adapters itself", "adapter")

    async def vocabulary(self) -> tuple[bytes, ...]:
        raise EngineError(f"{self._server.url} does not say which tokens its model has")

    async def take_abandoned_usage(self) -> AbandonedUsage:
        return AbandonedUsage(self._session_id)  # the record ends with the client

    def may_have_begun(self, session_id: str, request_ids: Sequence[str]) -> bool:  # noqa: ARG002 - the protocol's
        """Always possible: the server does not say."""
        return True

    async def stop_accepting(self) -> None:
        self._accepting = False

    async def submit(self, request: GenerationRequest) -> Generation:
        if not self.connected:
            raise self._lost()
        if not self._accepting:
            raise EngineNotAcceptingError("this client takes no more requests")
        can = await self.abilities()
        if request.adapter and request.adapter not in self._adapters:
            raise UnknownAdapterError(
                f"{self._server.url} lists no adapter {request.adapter} of {self._model}", "adapter"
            )
        model = self._adapters.get(request.adapter, self._model)
        bodies = [body_of(request, number, model, can) for number in range(request.candidates)]
        generation = self._generations.add(request, self._abort, _ignore)
        texts = [ForeignText() for _ in bodies]
        self._writing[request.id] = writing = [
            asyncio.create_task(self._write(request, number, body, text))
            for number, (body, text) in enumerate(zip(bodies, texts, strict=True))
        ]
        concluding = asyncio.create_task(self._conclude(request, texts, writing, can))
        self._concluding.add(concluding)
        concluding.add_done_callback(self._concluding.discard)
        return generation

    async def close(self) -> None:
        tasks = [*self._concluding, *([self._learning] if self._learning else [])]
        self._info, self._reason = None, ConnectionLostError("the client was closed")
        self._generations.fail_all(self._reason)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.close()

    # ---- what the server is

    async def _learn(self) -> Abilities:
        try:
            info = await self._described()
            can = await find_abilities(self._ask, info.model)
        except EngineError as error:
            self._reason = ConnectionLostError(f"{self._server.url}: {error}")
            raise self._reason from None
        self._info = info
        if can.lacks:
            log.info("%s cannot do all: %s", self._server.url, "; ".join(can.lacks))
        return can

    async def _described(self) -> EngineInfo:
        """EngineLostError if the server does not answer, or does not serve the model."""
        declared = self._declared
        try:
            async with asyncio.timeout(LIST_SECONDS), self._server.exchange("GET", "/models") as answer:
                await _check(answer)
                models = {str(each["id"]): each for each in (await answer.json())["data"]}
        except TimeoutError:
            raise ConnectionLostError(f"{self._server.url} did not list its models in {LIST_SECONDS:g} s") from None
        except (TypeError, KeyError, AttributeError):
            raise ConnectionLostError(f"{self._server.url}/models sent no list of models") from None
        names = ", ".join(models) or "none"
        bases = [name for name, each in models.items() if str(each.get("parent")) not in models]
        if declared.model is None and len(bases) != 1:
            which = f"set THOTHY_ENGINE_MODEL to one of {names}"
            raise ConnectionLostError(f"{self._server.url} has {len(bases)} models: {which}")
        self._model = declared.model or bases[0]
        if self._model not in models:
            raise ConnectionLostError(f"{self._server.url} has no model {self._model}, but {names}")
        adapters = self._named(
            name for name, each in models.items() if name != self._model and str(each.get("parent")) == self._model
        )
        self._adapter_changes += adapters != self._adapters
        self._adapters = adapters
        context = models[self._model].get("max_model_len")
        gpus = f"{declared.gpus} declared {'GPU' if declared.gpus == 1 else 'GPUs'}"
        return EngineInfo(
            session_id=self._session_id,
            model=printable(self._model),
            device=f"{gpus} at {urlsplit(self._server.url).netloc}",
            dtype="",
            block_size=0,
            num_blocks=0,
            max_context=context if isinstance(context, int) and context > 1 else declared.max_context,
            started_at=self._began,
            name=declared.name,
            capacity=declared.capacity,
            model_name=declared.name_of(self._model),
            registered=True,
            declared_gpus=declared.gpus,
        )

    def _named(self, adapted: Iterable[str]) -> dict[str, str]:
        """The server's adapters by their names for jobs, without ambiguous ones."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for name in adapted:
            found[plain_name(name.rpartition("/")[2])].append(name)
        for name, same in found.items():
            if len(same) > 1 and name not in self._ambiguous:
                self._ambiguous.add(name)
                log.warning("jobs cannot ask for %s: all would be named %s", " and ".join(sorted(same)), name)
        return {name: same[0] for name, same in found.items() if len(same) == 1}

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question, whole or streamed. Raises `EngineError`."""
        try:
            async with asyncio.timeout(ASK_SECONDS), self._server.exchange("POST", path, body) as answer:
                await _check(answer)
                if not body.get("stream"):
                    return dict(await answer.json())
                events = [event async for some in answer.events() for event in some]
                return {"usage": next((piece.usage for piece in map(piece_of, events) if piece.usage), None)}
        except TimeoutError:
            raise ConnectionLostError(f"{self._server.url} did not answer in {ASK_SECONDS:g} s") from None

    # ---- requests

    async def _conclude(
        self,
        request: GenerationRequest,
        texts: Sequence[ForeignText],
        writing: Sequence[asyncio.Task[None]],
        can: Abilities,
    ) -> None:
        """Wait for all texts, or until one fails, or they are aborted; deliver the result, whatever it is."""
        error: EngineError | None = None
        try:
            async with asyncio.timeout(LIFE_SECONDS):
                await asyncio.wait(writing, return_when=asyncio.FIRST_EXCEPTION)
        except TimeoutError:
            error = ConnectionLostError(f"{self._server.url} wrote for {LIFE_SECONDS:g} s")
        finally:
            for each in writing:
                each.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
            del self._writing[request.id]
        failures = (None if each.cancelled() else each.exception() for each in writing)
        if isinstance(failure := next(filter(None, failures), None), Exception):
            error = as_engine_error(failure)
            if error is not failure:
                log.error("request %s failed in the client", request.id, exc_info=failure)
        usage = self._usage(request, texts)
        if error is None:
            choices = [text.choice(request, can) for text in texts]
            self._generations.deliver([GenerationResult.of(request.id, _best(request, choices), usage)])
            return
        self._generations.deliver([Failure(request.id, error, usage)])
        if isinstance(error, EngineLostError):
            self._lose(error)

    async def _write(self, request: GenerationRequest, number: int, body: dict[str, Any], text: ForeignText) -> None:
        """Stream one text, retrying while the server is busy. A text too long for the context is cut to it."""
        path, pause, until = path_of(request), MIN_PAUSE, time.monotonic() + PATIENCE_SECONDS
        while True:
            await self._until_resumed()
            try:
                await self._stream(request, number, path, body, text)
            except BusyError as error:
                now = time.monotonic()
                if now > until:
                    raise EngineError(f"{error}, for {PATIENCE_SECONDS:g} s") from None
                self._refused_since = self._refused_since or now
                self._resume_at = max(self._resume_at, now + (error.seconds or pause * random.uniform(0.5, 1.0)))  # noqa: S311
                pause = min(2 * pause, MAX_PAUSE)
            except PromptTooLongError:
                limits = body.keys() & {"max_tokens", "max_completion_tokens"}
                if not limits:
                    raise
                body = {name: value for name, value in body.items() if name not in limits}  # retry within the context
            else:
                return

    async def _until_resumed(self) -> None:
        self._held += 1
        try:
            while (pause := self._resume_at - time.monotonic()) > 0:  # noqa: ASYNC110 - a refusal may extend it
                await asyncio.sleep(pause)
        finally:
            self._held -= 1

    async def _stream(
        self, request: GenerationRequest, number: int, path: str, body: dict[str, Any], text: ForeignText
    ) -> None:
        shown = number < request.n and request.candidates == request.n  # ranked texts are shown at the end
        self._shares.enter(text, self._tokens_of(len(str(body))))
        try:
            async with self._server.exchange("POST", path, body) as answer:
                await _check(answer)
                self._refused_since = 0.0
                whole = "event-stream" not in answer.headers.get("content-type", "")
                async for events in _whole(answer) if whole else answer.events():
                    for piece in map(piece_of, events):
                        if piece.text and len(text.pieces) == request.sampling.max_tokens:  # a piece is a token or more
                            text.finish_reason = FinishReason.LENGTH
                            return
                        gained = self._take(piece, text)
                        thoughts = piece.thoughts if request.divided else ""
                        if (piece.text or thoughts or piece.calls) and shown:
                            tokens = (UNKNOWN,) * gained
                            delta = Delta(request.id, piece.text, tokens, number, thoughts=thoughts, calls=piece.calls)
                            self._generations.deliver([delta])
        finally:
            text.seconds += self._shares.leave(text)
        if text.finish_reason is None:
            raise ConnectionLostError(f"{self._server.url} ended a text without saying why")

    def _take(self, piece: StreamedPiece, text: ForeignText) -> int:
        """Add a piece to its text; how many tokens it has, as far as that can be told."""
        characters = len(piece.text) + len(piece.thoughts) + sum(len(call.arguments) for call in piece.calls)
        gained = len(piece.logprobs) or (max(1, self._tokens_of(characters)) if characters else 0)
        if piece.text:
            text.pieces.append(piece.text)
        text.thoughts.append(piece.thoughts)
        text.calls += piece.calls
        text.logprobs += piece.logprobs
        text.finish_reason = piece.finish_reason or text.finish_reason
        text.tokens += gained
        if piece.usage is not None:
            text.prompt_tokens, text.cached_tokens, text.tokens = piece.usage
            self._characters += sum(map(len, text.pieces))
            self._tokens += text.tokens
        if gained:
            self._shares.add(text, gained)
        return gained

    def _tokens_of(self, characters: int) -> int:
        return round(characters * self._tokens / self._characters)

    def _usage(self, request: GenerationRequest, texts: Sequence[ForeignText]) -> Usage:
        """The prompt counts once: the server computes it once, as far as it keeps it."""
        prompt = max(text.prompt_tokens for text in texts)
        cached = min((text.cached_tokens for text in texts if text.prompt_tokens), default=0)
        output, seconds = sum(text.tokens for text in texts), sum(text.seconds for text in texts)
        aborted = any(text.finish_reason is None for text in texts)
        self._core = self._core.plus(
            requests_finished=int(not aborted),
            requests_aborted=int(aborted),
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=output,
            attributed_seconds=seconds,
            direct_seconds=0.0 if request.booked else seconds,
        )
        return Usage(prompt, cached, output, seconds)

    async def _abort(self, request_id: str) -> None:
        """Close its streams, which ends it there as well."""
        for task in self._writing.get(request_id, ()):
            task.cancel()

    def _lost(self) -> ConnectionLostError:
        return ConnectionLostError(str(self._reason))

    def _lose(self, error: EngineError) -> None:
        """The server may be lost: it must answer before more is sent."""
        self._reason = ConnectionLostError(str(error))
        self.on_lost()


def _best(request: GenerationRequest, choices: Sequence[Choice]) -> Sequence[Choice]:
    """The `n` texts with the best mean log-probability, if there are more."""
    if request.candidates == request.n:
        return choices

    def likeliness(choice: Choice) -> float:
        return float("-inf") if choice.mean_logprob is None else float(choice.mean_logprob)

    return sorted(choices, key=likeliness, reverse=True)[: request.n]


async def _check(answer: Answer) -> None:
    """Raise what an answer without success means."""
    if answer.status != 200:
        raise refusal_of(answer.status, answer.headers.get("retry-after"), await answer.whole())


async def _whole(answer: Answer) -> Any:
    """The one event of a server that does not stream."""
    yield [await answer.json()]


async def _ignore(request_id: str) -> None:
    """Pieces are delivered in any case."""
