"""One frame of `thothy top`, designed for 80 columns and 24 lines; it uses more columns if there are any."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from thothy_ai.admin.durations import per_time, spell, spell_whole
from thothy_ai.admin.top.polling import Unreachable
from thothy_ai.cli.views.tables import count, percent, printable

if TYPE_CHECKING:
    from thothy_ai.admin.top.engines import EngineFigures
    from thothy_ai.admin.top.queue import RecordFigures, WorkerFigures

PANEL_LINES = 9
REASON_LINES = 7  # in two columns
STALE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Frame:
    record: RecordFigures | Unreachable
    workers: WorkerFigures | Unreachable
    engine: EngineFigures | Unreachable

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys; an unreachable part is null, and `unreachable` says why."""
        parts: dict[str, Any] = {"record": self.record, "workers": self.workers, "engine": self.engine}
        unreachable = {name: part.why for name, part in parts.items() if isinstance(part, Unreachable)}
        values: dict[str, Any] = {name: None if name in unreachable else asdict(part) for name, part in parts.items()}
        if not isinstance(self.record, Unreachable):
            queue, hour = self.record.queue, self.record.hour
            values["record"]["queue"] |= {"open": queue.status.open, "seconds_to_go": queue.seconds_to_go}
            values["record"]["hour"] |= {"form_yield": hour.form_yield, "clean_yield": hour.clean_yield}
        return {**values, "unreachable": unreachable}


def render(frame: Frame, *, live: bool) -> RenderableType:
    """Draw a frame; a live one says how to leave it."""
    clock = datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    title = Table.grid(expand=True)
    title.add_column()
    title.add_column(justify="right")
    title.add_row(Text(f"thothy top   {clock}", style="bold"), Text("q quits" if live else "", style="dim"))
    upper = Table.grid(expand=True)
    upper.add_column(ratio=1)
    upper.add_column(ratio=1)
    upper.add_row(_queue_panel(frame), _engine_panel(frame.engine))
    return Group(title, upper, _hour_panel(frame.record))


def _queue_panel(frame: Frame) -> Panel:
    if isinstance(frame.record, Unreachable):
        return _unreachable("Queue", frame.record)
    queue, status, workers = frame.record.queue, frame.record.queue.status, frame.workers
    late = status["running"].expired_leases
    connected = "unknown without Redis" if isinstance(workers, Unreachable) else f"{workers.workers:,} connected"
    if status.paused:
        last = ("paused", printable(status.note or "`thothy queue resume`"))
    elif status.pauses:
        last = ("paused", printable(", ".join(f"{each.scope} {each.name}" for each in status.pauses)))
    elif not queue.due:
        last = ("to go", "nothing")
    else:
        last = ("to go", "-" if queue.seconds_to_go is None else f"about {spell_whole(queue.seconds_to_go)}")
    lines = [
        ("queued", f"{status['queued'].jobs - queue.delayed:,}"),
        ("for later", f"{queue.delayed:,}"),
        ("dispatched", f"{status['dispatched'].jobs:,}"),
        ("running", f"{status['running'].jobs:,}" + (f", {count(late, 'expired lease')}" if late else "")),
        ("workers", connected),
        ("oldest", f"waits {spell(status.oldest_age)}" if status.oldest_age else "-"),
        ("due in 1 h", f"{sum(state.due_1h for state in status.states.values()):,}"),
        ("rate", per_time(queue.jobs_per_second)),
        last,
    ]
    age = f" (counted {queue.age_seconds:.0f} s ago)" if queue.age_seconds >= STALE_SECONDS else ""
    return _panel(f"Queue{age}", _grid(lines), "yellow" if status.paused or status.pauses else "")


def _engine_panel(engine: EngineFigures | Unreachable) -> Panel:
    if isinstance(engine, Unreachable):
        return _unreachable("Engine", engine)
    lines = [
        ("model", printable(engine.model)),
        ("device", printable(engine.device)),
        ("rows", f"{engine.running:,} running, {engine.waiting:,} waiting"),
        ("KV", f"{percent(engine.kv_used)} of {engine.kv_blocks:,} blocks"),
        ("prompt", f"{_whole(engine.prompt_tokens_per_second)} tok/s"),
        ("output", f"{_whole(engine.output_tokens_per_second)} tok/s"),
        ("step", f"{_ms(engine.step_seconds)}, masks {_ms(engine.mask_seconds)}"),
        ("busy", percent(engine.busy_share)),
        ("prefix", f"{percent(engine.prefix_hit_rate)} cached"),
    ]
    return _panel(f"{engine.engines} engines" if engine.engines > 1 else "Engine", _grid(lines))


def _hour_panel(record: RecordFigures | Unreachable) -> Panel:
    if isinstance(record, Unreachable):
        return _unreachable("Last hour", record)
    hour = record.hour
    failed = sum(number for _, number in hour.reasons)
    jobs = f"{hour.with_artifact:,} of {count(hour.with_output, 'job')} with output"
    summary = (
        f"form yield {percent(hour.form_yield)}, clean yield {percent(hour.clean_yield)}: {jobs}",
        f"{failed:,} of {count(hour.attempts, 'attempt')} without an artifact",
    )
    reasons = Table.grid(expand=True, padding=(0, 1))  # the most frequent, in two columns
    for justify in ("right", "left") * 2:
        reasons.add_column(justify=justify, no_wrap=True, overflow="ellipsis", ratio=None if justify == "right" else 1)
    cells = [(f"{number:,}", printable(reason)) for reason, number in hour.reasons[: 2 * REASON_LINES]]
    cells += [("", "")] * (2 * REASON_LINES - len(cells))
    for left, right in zip(cells[:REASON_LINES], cells[REASON_LINES:], strict=True):
        reasons.add_row(*map(Text, (*left, *right)))
    return _panel("Last hour", Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in summary), reasons))


def _grid(lines: Iterable[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    for name, value in lines:
        grid.add_row(name, Text(value))
    return grid


def _unreachable(title: str, part: Unreachable) -> Panel:
    return _panel(title, Text(f"not connected\n\n{printable(part.why)}"), style="red")


def _panel(title: str, content: RenderableType, style: str = "") -> Panel:
    return Panel(content, title=title, title_align="left", height=PANEL_LINES + 2, border_style=style or "none")


def _whole(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f} ms"
