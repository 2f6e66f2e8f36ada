"""Keeps RESULTS.md: one section per benchmark, replaced when it runs again, with date, machine and command."""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
_TITLE = """# Results

Every figure was measured by the command above its table. Compare ratios within a table, not times between machines.
"""


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine() -> str:
    """One line that describes this machine."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else []
    name = names[0] if names else platform.machine()
    return f"{os.cpu_count()} cores, {name}, Python {platform.python_version()}"


def write_section(title: str, command: str, body: str, *, where: str | None = None) -> None:
    """Write the section to RESULTS.md, replacing the one with the same title."""
    date = datetime.now(UTC).date().isoformat()
    section = f"## {title}\n\n`{command}` · {date} · {where or machine()}\n\n{body.strip()}\n"
    text = RESULTS.read_text() if RESULTS.exists() else _TITLE
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    text = pattern.sub(lambda _: section + "\n", text) if pattern.search(text) else f"{text.rstrip()}\n\n{section}"
    RESULTS.write_text(text.rstrip() + "\n")
