"""Measurements: one JSON file per subject in `results/`, and RESULTS.md, which is rendered from them.

A benchmark calls `record`. The prediction and the note of a subject, on what limits it, are written by hand in its
file and kept when it is measured again; nothing else is. `python -m benchmarks.results` renders the page.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE / "results"
PAGE = HERE / "RESULTS.md"
AREAS = ("Drains", "Schemas", "Service", "Queue", "Engine", "Kernels", "Accuracy")
INTRODUCTION = """# Results

Today's figures, by area: each subject's values and targets, then the command that measures it and what limits it.
The page is rendered from `benchmarks/results/*.json`, which also hold longer tables. Earlier figures are in git.
Compare figures only within one run on one machine: machines of one kind differ by several percent.
"""
SHOWN = 6  # rows of a subject on the page
Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A longer table, which is kept in the file only."""

    title: str
    header: Row
    rows: list[Row]


@dataclass(frozen=True)
class Measurement:
    """What was measured, where and when; rows of `figures` are a name, a value and a target, which may be empty."""

    subject: str
    area: str
    command: str
    figures: list[Row]
    commit: str = ""
    date: str = ""
    device: str = ""
    prediction: str = ""
    note: str = ""
    tables: list[Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.area in AREAS, self.area
        assert all(len(row) == 3 for row in self.figures), self.figures

    @property
    def path(self) -> Path:
        return FOLDER / (re.sub(r"[^a-z0-9]+", "-", self.subject.lower()).strip("-") + ".json")


def record(
    subject: str,
    area: str,
    command: str,
    figures: Sequence[Sequence[str]],
    *,
    tables: Sequence[Table] = (),
    device: str | None = None,
) -> None:
    """Write the measurement, in the place of the subject's last one, and render the page."""
    measured = Measurement(
        subject,
        area,
        command,
        [(*row, *[""] * (3 - len(row))) for row in figures],
        commit=_commit(),
        date=datetime.now(UTC).date().isoformat(),
        device=device or machine(),
        tables=list(tables),
    )
    kept = json.loads(measured.path.read_text()) if measured.path.exists() else {}
    words = {name: kept.get(name, "") for name in ("prediction", "note")}
    measured.path.write_text(json.dumps(asdict(measured) | words, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(render(load()))


def load(folder: Path | None = None) -> list[Measurement]:
    """All measurements, the newest of each area first."""
    found = []
    for path in sorted((folder or FOLDER).glob("*.json")):
        fields = json.loads(path.read_text())
        tables = [Table(each["title"], tuple(each["header"]), each["rows"]) for each in fields.pop("tables")]
        found.append(Measurement(**fields, tables=tables))
        assert found[-1].path.name == path.name, f"{path.name} is not named after its subject"
    return sorted(found, key=lambda each: each.date, reverse=True)


def render(measurements: Sequence[Measurement]) -> str:
    """RESULTS.md."""
    parts = [INTRODUCTION]
    for area in AREAS:
        if members := [each for each in measurements if each.area == area]:
            rows = [
                (each.subject if not index else "", *row)
                for each in members
                for index, row in enumerate(each.figures[:SHOWN])
            ]
            figures = table(("subject", "figure", "value", "target"), rows)
            parts.append(f"## {area}\n\n{figures}\n\n" + "\n".join(map(_limits, members)) + "\n")
    return "\n".join(parts)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---" for _ in header], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine() -> str:
    """One line that describes this machine."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else []
    name = names[0] if names else platform.machine()
    return f"{os.cpu_count()} cores, {name}, Python {platform.python_version()}"


def _limits(measured: Measurement) -> str:
    commit = f" at {measured.commit}" if measured.commit else ""
    where = f"`{measured.command}`{commit}, {measured.date}, {measured.device}."
    predicted = f"Predicted: {measured.prediction}." if measured.prediction else ""
    return " ".join(filter(None, (f"- **{measured.subject}**:", where, predicted, measured.note)))


def _commit() -> str:
    """The checkout's commit, with a plus sign if it has changes; empty outside a checkout."""

    if shutil.which("git") is None:  # as on a machine that only got a copy of the tree
        return ""

    def git(*arguments: str) -> str:
        done = subprocess.run(("git", *arguments), cwd=HERE, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return git("rev-parse", "--short=8", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


if __name__ == "__main__":
    argparse.ArgumentParser("python -m benchmarks.results", description="Render RESULTS.md.").parse_args()
    PAGE.write_text(render(load()))
