"""This machine's engines for `thothy top`, with rates from the differences of their counters over 10 s."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import Engine

from thothy_ai.admin.engines import addresses, engine_state
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.engine.api import CoreStats, EngineInfo, EngineStats
from thothy_ai.engine.api.errors import EngineLostError
from thothy_ai.errors import DatabaseError
from thothy_ai.foreign import is_foreign
from thothy_ai.settings import Settings

WINDOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """An engine's current state, and its rates over the last seconds. A rate without a divisor is None."""

    model: str
    device: str
    running: int
    waiting: int
    kv_blocks: int
    kv_used: float | None
    prompt_tokens_per_second: float | None  # computed tokens, without those from the prefix cache
    output_tokens_per_second: float | None
    step_seconds: float | None  # this and the next since the engine's start if no step ended in the last seconds
    mask_seconds: float | None  # host time per step
    busy_share: float | None
    prefix_hit_rate: float | None  # since the engine's start, if no prompt was admitted in the last seconds
    preemptions: int
    engines: int = 1
    memory_used: int = 0  # bytes on the devices, or of the process on a CPU; 0: unknown
    memory_total: int = 0
    memory_planned: int = 0

    @classmethod
    def together(cls, each: Sequence[EngineFigures]) -> EngineFigures:
        """Several engines as one: counts and rates are summed, shares and times averaged."""
        if len(each) == 1:
            return each[0]
        return cls(
            model=", ".join(dict.fromkeys(of.model for of in each)),
            device=", ".join(dict.fromkeys(of.device for of in each)),
            running=sum(of.running for of in each),
            waiting=sum(of.waiting for of in each),
            kv_blocks=sum(of.kv_blocks for of in each),
            kv_used=_mean(of.kv_used for of in each),
            prompt_tokens_per_second=_sum(of.prompt_tokens_per_second for of in each),
            output_tokens_per_second=_sum(of.output_tokens_per_second for of in each),
            step_seconds=_mean(of.step_seconds for of in each),
            mask_seconds=_mean(of.mask_seconds for of in each),
            busy_share=_mean(of.busy_share for of in each),
            prefix_hit_rate=_mean(of.prefix_hit_rate for of in each),
            preemptions=sum(of.preemptions for of in each),
            engines=len(each),
            memory_used=sum(of.memory_used for of in each),
            memory_total=sum(of.memory_total for of in each),
            memory_planned=sum(of.memory_planned for of in each),
        )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


class EngineMeter:
    """Turns an engine's counters into rates. A new session starts from zero."""

    def __init__(self) -> None:
        self._session = ""
        self._points: deque[tuple[float, CoreStats]] = deque()

    def measure(self, now: float, info: EngineInfo, stats: EngineStats) -> EngineFigures:
        """Add a sample, taken at `now` in monotonic seconds."""
        if info.session_id != self._session:
            self._session = info.session_id
            self._points.clear()
        self._points.append((now, stats.core))
        while now - self._points[0][0] > WINDOW_SECONDS:
            self._points.popleft()
        begun, first = self._points[0]
        return _figures(info, stats, first, now - begun)


def _figures(info: EngineInfo, stats: EngineStats, first: CoreStats, seconds: float) -> EngineFigures:
    core, blocks = stats.core, stats.blocks
    stepped = first if core.steps > first.steps else CoreStats()  # for an idle engine, averages since its start
    admitted = first if core.prompt_tokens > first.prompt_tokens else CoreStats()
    steps = core.steps - stepped.steps
    share = _ratio(core.busy_seconds - first.busy_seconds, seconds)
    return EngineFigures(
        model=info.model,
        device=info.device,
        running=stats.scheduler.running,
        waiting=stats.scheduler.waiting,
        kv_blocks=blocks.total,
        kv_used=_ratio(blocks.used, blocks.total),
        prompt_tokens_per_second=_ratio(core.prefill_tokens - first.prefill_tokens, seconds),
        output_tokens_per_second=_ratio(core.output_tokens - first.output_tokens, seconds),
        step_seconds=_ratio(core.busy_seconds - stepped.busy_seconds, steps),
        mask_seconds=_ratio(core.mask_seconds - stepped.mask_seconds, steps),
        busy_share=None if share is None else min(share, 1.0),
        prefix_hit_rate=_ratio(
            core.cached_tokens - admitted.cached_tokens, core.prompt_tokens - admitted.prompt_tokens
        ),
        preemptions=stats.scheduler.preemptions,
        memory_used=stats.memory.used_bytes,
        memory_total=stats.memory.total_bytes,
        memory_planned=stats.memory.planned_bytes,
    )


def _ratio(above: float, below: float) -> float | None:
    return above / below if below > 0 else None


class EngineSource:
    """Asks the engine at THOTHY_ENGINE_URL, and the registered engines of this machine.

    Every read opens new connections, because an engine may have been restarted.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._url, self._token = settings.require_engine_url(), settings.reveal_engine_token()
        self._meters: defaultdict[str, EngineMeter] = defaultdict(EngineMeter)
        self._record: Engine | None = None
        if settings.database_url is not None:
            self._record = make_engine(settings, application="cli", pool_size=1)

    def read(self) -> EngineFigures:
        """The figures of all engines that answer. Raises `EngineLostError` if none does."""
        urls = [self._url]
        if self._record is not None:
            with suppress(DatabaseError), reaching(self._settings):  # without Postgres, read only the configured engine
                urls += addresses(self._record, socket.gethostname())
        if not (ours := [url for url in dict.fromkeys(urls) if not is_foreign(url)]):
            raise EngineLostError(f"{self._url} is a server over HTTP, whose figures are its own")
        return EngineFigures.together(asyncio.run(self._ask(ours)))

    def close(self) -> None:
        if self._record is not None:
            self._record.dispose()

    async def _ask(self, urls: Sequence[str]) -> list[EngineFigures]:
        answers = await asyncio.gather(*(self._figures(url) for url in urls), return_exceptions=True)
        figures = [answer for answer in answers if isinstance(answer, EngineFigures)]
        for answer in answers:
            if isinstance(answer, BaseException) and not (figures and isinstance(answer, EngineLostError)):
                raise answer
        return figures

    async def _figures(self, url: str) -> EngineFigures:
        info, stats = await engine_state(url, self._token)
        return self._meters[url].measure(time.monotonic(), info, stats)
