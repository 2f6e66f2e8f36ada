"""One frame of `thothy top`: made for 80 columns and 24 lines, and wider where there is room."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from thothy_ai.admin.top.polling import Unreachable
from thothy_ai.cli.views import times
from thothy_ai.cli.views.tables import count, printable

if TYPE_CHECKING:
    from thothy_ai.admin.top.engines import EngineFigures
    from thothy_ai.admin.top.queue import HourFigures, QueueFigures, RecordFigures, WorkerFigures

PANEL_LINES = 9
REASON_LINES = 7  # in two columns
STALE_SECONDS = 3.0

Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Frame:
    """What one frame shows."""

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
            values["record"]["hour"]["artifact_yield"] = hour.artifact_yield
        return {**values, "unreachable": unreachable}


def render(frame: Frame, *, live: bool) -> RenderableType:
    """A frame; a live one says how to leave it."""
    clock = datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    title = Table.grid(expand=True)
    title.add_column()
    title.add_column(justify="right")
    title.add_row(Text(f"thothy top   {clock}", style="bold"), Text("q quits" if live else "", style="dim"))
    upper = Table.grid(expand=True)
    upper.add_column(ratio=1)
    upper.add_column(ratio=1)
    upper.add_row(_queue(frame), _engine(frame.engine))
    return Group(title, upper, _hour(frame.record))


def _queue(frame: Frame) -> Panel:
    if isinstance(frame.record, Unreachable):
        return _away("Queue", frame.record)
    queue = frame.record.queue
    age = f" (counted {queue.age_seconds:.0f} s ago)" if queue.age_seconds >= STALE_SECONDS else ""
    style = "yellow" if queue.status.paused else ""
    return _panel(f"Queue{age}", _lines(_queue_lines(queue, frame.workers)), style)


def _queue_lines(queue: QueueFigures, workers: WorkerFigures | Unreachable) -> Iterable[Line]:
    status = queue.status
    yield "queued", f"{status['queued'].jobs - queue.delayed:,}"
    yield "for later", f"{queue.delayed:,}"
    yield "dispatched", f"{status['dispatched'].jobs:,}"
    late = status["running"].expired_leases
    yield "running", f"{status['running'].jobs:,}" + (f", {count(late, 'expired lease')}" if late else "")
    yield "workers", "unknown without Redis" if isinstance(workers, Unreachable) else f"{workers.workers:,} connected"
    yield "oldest", f"waits {times.spell(status.oldest_age)}" if status.oldest_age else "-"
    yield "due in 1 h", f"{sum(state.due_1h for state in status.states.values()):,}"
    yield "rate", times.per_time(queue.jobs_per_second)
    if status.paused:
        yield "paused", printable(status.note or "`thothy queue resume`")
    else:
        yield "to go", "nothing" if not queue.due else times.spell(queue.seconds_to_go)


def _engine(engine: EngineFigures | Unreachable) -> Panel:
    if isinstance(engine, Unreachable):
        return _away("Engine", engine)
    title = f"{engine.engines} engines" if engine.engines > 1 else "Engine"
    return _panel(title, _lines(_engine_lines(engine)))


def _engine_lines(engine: EngineFigures) -> Iterable[Line]:
    yield "model", printable(engine.model)
    yield "device", printable(engine.device)
    yield "rows", f"{engine.running:,} running, {engine.waiting:,} waiting"
    yield "KV", f"{_percent(engine.kv_used)} of {engine.kv_blocks:,} blocks"
    yield "prompt", f"{_whole(engine.prompt_tokens_per_second)} tok/s"
    yield "output", f"{_whole(engine.output_tokens_per_second)} tok/s"
    yield "step", f"{_ms(engine.step_seconds)}, masks {_ms(engine.mask_seconds)}"
    yield "busy", _percent(engine.busy_share)
    yield "prefix", f"{_percent(engine.prefix_hit_rate)} cached"


def _hour(record: RecordFigures | Unreachable) -> Panel:
    title = "Last hour"
    if isinstance(record, Unreachable):
        return _away(title, record)
    hour = record.hour
    return _panel(title, Group(*map(_text, _yield_lines(hour)), _reasons(hour)))


def _yield_lines(hour: HourFigures) -> Iterable[str]:
    failed = sum(number for _, number in hour.reasons)
    jobs = f"{hour.with_artifact:,} of {count(hour.with_output, 'job')} with output"
    yield f"artifact yield {_percent(hour.artifact_yield)}: {jobs}"
    yield f"{failed:,} of {count(hour.attempts, 'attempt')} without an artifact"


def _reasons(hour: HourFigures) -> Table:
    """The most frequent reasons, in two columns."""
    grid = Table.grid(expand=True, padding=(0, 1))
    for justify in ("right", "left") * 2:
        grid.add_column(justify=justify, no_wrap=True, overflow="ellipsis", ratio=None if justify == "right" else 1)
    cells = [(f"{number:,}", printable(reason)) for reason, number in hour.reasons[: 2 * REASON_LINES]]
    for at in range(REASON_LINES):
        left, right = cells[at : at + 1], cells[at + REASON_LINES : at + REASON_LINES + 1]
        grid.add_row(*(left[0] if left else ("", "")), *(right[0] if right else ("", "")))
    return grid


def _lines(lines: Iterable[Line]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    for name, value in list(lines)[:PANEL_LINES]:
        grid.add_row(name, Text(value))
    return grid


def _text(line: str) -> Text:
    return Text(line, no_wrap=True, overflow="ellipsis")


def _away(title: str, part: Unreachable) -> Panel:
    return _panel(title, Text(f"not connected\n\n{printable(part.why)}"), style="red")


def _panel(title: str, content: RenderableType, style: str = "") -> Panel:
    return Panel(content, title=title, title_align="left", height=PANEL_LINES + 2, border_style=style or "none")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _whole(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f} ms"
