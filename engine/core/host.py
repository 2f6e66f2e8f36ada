"""What stands between the frontend and the core's loop: schemas become grammars, refusals become events."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from thothy_ai.engine.api import EngineInfo, EngineStats, FinishReason, TextStats
from thothy_ai.engine.api.core import CoreRequest, OnEvents, RefusedEvent
from thothy_ai.engine.api.errors import BudgetTooSmallError, EngineError, GrammarError, PromptTooLongError
from thothy_ai.engine.api.inflight_log import GRAMMARS, Admissions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.grammar.compiler import Grammar

log = logging.getLogger(__name__)


class Compiler(Protocol):
    """Makes grammars; used by one thread."""

    def compile(self, schema: str) -> Grammar:
        """A grammar of the JSON texts that match the schema (JSON text); GrammarError if there is none."""


class CoreHost:
    """Implements `Core` over the loop of this process. Grammars are compiled in order, on a thread of their own, which
    requests without a schema do not wait for.
    """

    def __init__(
        self, core: EngineCore, grammars: Compiler, on_events: OnEvents, admissions: Admissions | None = None
    ) -> None:
        self._admissions = admissions or Admissions(GRAMMARS)
        self._core, self._grammars, self._on_events = core, grammars, on_events
        self._lock = threading.Lock()  # guards what follows
        self._compiling: dict[str, FinishReason | None] = {}  # why a request is to end once it is compiled
        self._refused = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="engine-grammars", daemon=True).start()

    def submit(self, request: CoreRequest) -> None:
        """Pass a request on, once its schema is compiled."""
        if request.schema is None:
            self._pass_on(request)
            return
        with self._lock:
            self._compiling[request.id] = None
        self._work.put(partial(self._compile, request))

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        """End a request early; one that is being compiled, once the core has it."""
        with self._lock:
            if request_id in self._compiling:
                self._compiling[request_id] = reason
                return
        self._core.abort(request_id, reason)

    def stats(self) -> EngineStats:
        """The loop's, and the number of schemas that do not compile."""
        return replace(self._core.stats(), text=TextStats(self._refused))

    def info(self) -> EngineInfo:
        """The loop's."""
        return self._core.info()

    def stop(self) -> None:
        """End the loop, and this thread with it."""
        self._work.put(self._core.stop)
        self._work.put(None)

    def _pass_on(self, request: CoreRequest) -> None:
        try:
            self._core.submit(request)
        except EngineError as error:
            self._on_events([RefusedEvent(request.id, error)])

    # ---- the grammars' thread

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            try:
                item()
            except Exception:
                log.exception("unexpected error in the core's host at %r", item)

    def _compile(self, request: CoreRequest) -> None:
        error = None
        try:
            with self._admissions.entered(request.id):
                request = replace(request, grammar=self._grammar(request))
        except Exception as raised:  # noqa: BLE001  a schema is foreign, and ends its own request only
            error = _typed(raised)
        if error is None:
            self._pass_on(request)
        self._compiled(request.id, error)

    def _grammar(self, request: CoreRequest) -> Grammar:
        """The schema's; its text ends within `max_tokens`, and within what the prompt leaves of the context."""
        grammar = self._grammars.compile(request.schema or "")
        wanted, room = request.sampling.max_tokens, self._core.info().max_context - len(request.prompt)
        if room > 0:  # otherwise the core refuses it
            _limit(grammar, wanted, room)
        return grammar

    def _compiled(self, request_id: str, error: EngineError | None) -> None:
        with self._lock:
            reason = self._compiling.pop(request_id)
            self._refused += error is not None
        if error is not None:
            self._on_events([RefusedEvent(request_id, error)])
        elif reason is not None:
            self._core.abort(request_id, reason)


def _limit(grammar: Grammar, wanted: int, room: int) -> None:
    """Limit a grammar's text. Where it needs more than the prompt leaves, that one is too long."""
    try:
        grammar.limit(min(wanted, room))
    except BudgetTooSmallError as error:
        if wanted <= room:
            raise
        raise PromptTooLongError(f"{error}, which is what the prompt leaves of the context") from error


def _typed(error: Exception) -> EngineError:
    """The error itself if it is typed; any other is logged and becomes a GrammarError."""
    if isinstance(error, EngineError):
        return error
    log.error("a schema could not be compiled", exc_info=error)
    return GrammarError(f"the schema could not be compiled: {error!r}")
