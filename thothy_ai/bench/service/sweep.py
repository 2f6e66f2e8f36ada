"""`thothy bench serve`: loads a server at a range of rates, and finds the knee: the highest that meets a target."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from thothy_ai.bench.progress import Progress
from thothy_ai.bench.service.load import Goal, Load, LoadClient
from thothy_ai.engine.api.errors import EngineError, InvalidRequestError
from thothy_ai.foreign.http import HttpServer
from thothy_ai.foreign.replies import refusal_of

NEAR = 1.1  # the search for the knee ends at this ratio between the lowest rate that fails and the highest that passes
MAX_RATES = 24
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
TIMES = {"first_token": "first token", "per_token": "per token", "whole": "whole answer"}


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Without `rates`, rates are searched: doubled from `start` until one misses the target, then bisected."""

    url: str
    key: str | None = None
    model: str | None = None
    rates: tuple[float, ...] = ()
    start: float = 1.0
    seconds: float = 20.0
    requests: int = 20
    prompt_tokens: int = 1000
    output_tokens: int = 200
    seed: int = 0
    target: Goal = field(default_factory=Goal)
    share: float = 0.99
    patience: float = 120.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """The loads by rate. `prompt_tokens` is the length of a prompt by the server's own count."""

    options: SweepOptions
    model: str
    prompt_tokens: int
    loads: tuple[Load, ...]

    def met(self, load: Load) -> bool:
        return load.attained(self.options.target) >= self.options.share

    @property
    def knee(self) -> float | None:
        """The highest rate that meets the target, as do all rates below it; None if no rate does."""
        met = None
        for load in self.loads:
            if not self.met(load):
                break
            met = load.rate
        return met

    @property
    def bounded(self) -> bool:
        """Whether a rate missed the target; otherwise the knee lies beyond all rates that were tried."""
        return any(not self.met(load) for load in self.loads)

    def to_json(self) -> dict[str, Any]:
        options = asdict(self.options)
        del options["key"]
        return {
            **options,
            "model": self.model,
            "prompt_tokens": self.prompt_tokens,
            "knee": self.knee,
            "bounded": self.bounded,
            "loads": [self._load(load) for load in self.loads],
        }

    def _load(self, load: Load) -> dict[str, Any]:
        attained, target = load.attained(self.options.target), self.options.target
        times = {
            name: {label: load.percentile(name, share) for label, share in SHARES.items()} for name in (*TIMES, "late")
        }
        errors = [sample.error for sample in load.samples if sample.error]
        rate, answers = load.answers_per_second, max(1, len(load.answered))
        return {
            "rate": load.rate,
            "seconds": load.seconds,
            "requests": len(load.samples),
            "failed": len(errors),
            "first_error": errors[0] if errors else None,
            "requests_per_second": rate,
            "output_tokens_per_second": rate * sum(sample.tokens for sample in load.answered) / answers,
            "attained": attained,
            "goodput": rate * sum(sample.meets(target) for sample in load.samples) / answers,
            **times,
            "client_cpu": load.cpu,
            "client_lags": load.lags,
            "short": load.is_short,
        }


def measure_sweep(options: SweepOptions, progress: Progress) -> Sweep:
    """Load the server with each rate. Raises `EngineError`."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(options, progress))


async def _measure(options: SweepOptions, progress: Progress) -> Sweep:
    server = HttpServer(options.url, options.key, options.patience)
    try:
        model = options.model or await _only_model(server)
        client = LoadClient(server, model, options.prompt_tokens, options.output_tokens, options.seed, options.patience)
        sweep = Sweep(options, model, await client.prepare(), ())

        async def load(rate: float) -> bool:
            nonlocal sweep
            progress.say(f"Loading {options.url} with {rate:g} requests per second")
            measured = await client.run(rate, options.seconds, options.requests)
            if len(measured.answered) < len(measured.samples) / 2 and not sweep.loads:
                raise EngineError(f"most requests failed: {next(s.error for s in measured.samples if s.error)}")
            sweep = replace(sweep, loads=tuple(sorted((*sweep.loads, measured), key=lambda each: each.rate)))
            return sweep.met(measured)

        if not options.rates:
            await find_knee(load, options.start)
        for rate in sorted(set(options.rates)):
            await load(rate)
    finally:
        await server.close()
    progress.clear()
    return sweep


async def find_knee(load: Callable[[float], Awaitable[bool]], start: float) -> None:
    """Double the rate until it misses the target, or halve it until it meets it; then bisect between the two."""
    met, missed, rate = 0.0, 0.0, start
    for _ in range(MAX_RATES):
        if await load(rate):
            met = rate
        else:
            missed = rate
        if not missed:
            rate = 2 * met
        elif not met:
            rate = missed / 2
        elif missed / met <= NEAR:
            return
        else:
            rate = (met * missed) ** 0.5


async def _only_model(server: HttpServer) -> str:
    async with server.exchange("GET", "/models") as answer:
        if answer.status != 200:
            raise refusal_of(answer.status, None, await answer.whole())
        found = await answer.json()
    try:
        names = [str(model["id"]) for model in found["data"]]
    except (TypeError, KeyError):
        raise InvalidRequestError(f"{server.url}/models sent no list of models") from None
    if len(names) != 1:
        raise InvalidRequestError(
            f"{server.url} has {len(names)} models: choose one with --model of {', '.join(names)}"
        )
    return names[0]


def sweep_columns() -> list[str]:
    """The headings of the table's columns."""
    times = [f"{short} {label}" for short in ("first", "token", "whole") for label in SHARES]
    return ["rate", "req/s", "failed", *times, "tok/s", "good", "goodput"]


def sweep_rows(sweep: Sweep) -> list[list[str]]:
    """A row for each rate, with times in milliseconds. Rates with a lagging client or a short load are marked."""

    def milliseconds(value: float | None) -> str:
        return "-" if value is None else f"{1e3 * value:,.1f}"

    return [
        [
            f"{of['rate']:g}{' *' if of['client_lags'] else ''}{' !' if of['short'] else ''}",
            f"{of['requests_per_second']:.2f}",
            f"{of['failed']:,}",
            *(milliseconds(of[name][label]) for name in TIMES for label in SHARES),
            f"{of['output_tokens_per_second']:,.0f}",
            f"{of['attained']:.1%}",
            f"{of['goodput']:.2f}",
        ]
        for of in sweep.to_json()["loads"]
    ]


def verdict(sweep: Sweep) -> list[str]:
    """Sentences about the table: the target, the knee, short loads, and whether the client kept up."""
    options, target = sweep.options, sweep.options.target
    says = f"{options.share:.0%} of answers have their first token within {1e3 * target.first_token:g} ms"
    lines = [f"Target: {says}, and {1e3 * target.per_token:g} ms per further token."]
    if sweep.knee is None:
        lines.append("Knee: none: the target is missed at every rate.")
    elif not sweep.bounded:
        lines.append(f"Knee: above {sweep.knee:g} requests per second, the highest rate that was tried.")
    else:
        lines.append(f"Knee: {sweep.knee:.3g} requests per second.")
    if short := [load for load in sweep.loads if load.is_short]:
        whole = max(load.percentile("whole", 0.5) or 0.0 for load in short)
        lines.append(
            f"! All answers ended within less time than one takes, up to {whole:.3g} s: these rates are those of the"
            " whole load, and too low. Load the server for longer with --seconds."
        )
    if lagging := [load for load in sweep.loads if load.lags]:
        late = max(load.percentile("late", 0.99) or 0.0 for load in lagging)
        cpu = max(load.cpu for load in lagging)
        lines.append(
            f"* The client lagged: requests left up to {1e3 * late:.0f} ms late (p99), and it took {cpu:.0%} of a core."
            " These figures are not the server's alone."
        )
    return lines
