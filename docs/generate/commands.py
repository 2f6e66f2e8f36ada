"""`cli.md`: every command with its help text, arguments, options and examples, from the Typer application."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from typer import Context
from typer.main import get_command

from docs.generate.markdown import code, fence, page, table
from thothy_ai.bench.options import drain_parser, service_parser
from thothy_ai.cli import app

PROGRAM = "thothy"
_BENCH = {f"{PROGRAM} bench drain": drain_parser, f"{PROGRAM} bench service": service_parser}  # argparse's
_EXAMPLE = "Example: "
_LIMITS = (
    (re.compile(r"(-?[\d.]+)<=x<=(-?[\d.]+)"), r"\1 to \2"),
    (re.compile(r"x>=(-?[\d.]+)"), r"\1 or more"),
    (re.compile(r"x<=(-?[\d.]+)"), r"at most \1"),
    (re.compile(r"^default: |(?<=\d)\.0\b"), ""),
    (re.compile(r"; "), ", "),
)
_NOTES = re.compile(r"\s*\[(?P<notes>(?:default|required|env var|x|\d)[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*)\]$")


@dataclass(frozen=True, slots=True)
class Row:
    """An argument or an option: how it is typed, what it does, and its default and limits."""

    typed: str
    help: str
    notes: str = ""


def commands_page() -> str:
    """The page."""
    found = list(commands())
    contents = "\n".join(f"- [{code(name)}](#{anchor(name)}): {_summary(command)}" for name, command in found)
    return page(
        "Command line",
        "Every command of `thothy`, as its `--help` shows it.",
        "A time is a duration such as `45s`, `30m`, `1h30m` or `2d`, or a date and time such as `2026-11-21T06:00`,"
        " which is local time\nunless it names a zone. The [exit codes](exit-codes.md) are the same for all commands.",
        contents,
        *(_section(name, command) for name, command in found),
    )


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its full name, in the order of `--help`; a group's too when it does something itself."""
    return _walk(get_command(app), PROGRAM)


def anchor(heading: str) -> str:
    """The fragment under which GitHub finds a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    names = command.list_commands(None) if hasattr(command, "list_commands") else []
    if not names or name == PROGRAM or getattr(command, "invoke_without_command", False):
        yield name, command
    for each in names:
        below = command.get_command(None, each)
        if not below.hidden:
            yield from _walk(below, f"{name} {each}")


def _section(name: str, command: Any) -> str:
    about, examples = split_help(command.help or "")
    arguments, options = _bench_rows(_BENCH[name]()) if name in _BENCH else _rows(command)
    parts = (
        f"## {name}",
        about,
        _table("Argument", arguments),
        _table("Option", options),
        fence("\n".join(examples), "console") if examples else "",
    )
    return "\n\n".join(filter(None, parts))


def split_help(text: str) -> tuple[str, list[str]]:
    """A help text without its examples, and the examples."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    examples = [part.removeprefix(_EXAMPLE) for part in paragraphs if part.startswith(_EXAMPLE)]
    return "\n\n".join(part for part in paragraphs if part and not part.startswith(_EXAMPLE)), examples


def _summary(command: Any) -> str:
    """The first sentence of a command's help."""
    first = split_help(command.help or "")[0].partition("\n\n")[0]
    return first.partition(". ")[0].rstrip(".")


def _table(head: str, rows: Sequence[Row]) -> str:
    """The table of these rows; an empty text if there are none."""
    if not rows:
        return ""
    if not any(row.notes for row in rows):
        return table((head, "Description"), [(code(row.typed), row.help) for row in rows])
    notes = [(code(row.typed), row.notes or "-", row.help) for row in rows]
    return table((head, "Default and limits", "Description"), notes)


def _rows(command: Any) -> tuple[list[Row], list[Row]]:
    """The arguments, and the options without `--help`."""
    context = Context(command, info_name=command.name, resilient_parsing=True)
    shown = [(each, each.get_help_record(context)) for each in command.params if "--help" not in each.opts]
    rows = [(each.param_type_name, _row(*record)) for each, record in shown if record is not None]
    return [row for kind, row in rows if kind == "argument"], [row for kind, row in rows if kind == "option"]


def _row(typed: str, text: str) -> Row:
    """A row from the two columns that `--help` prints."""
    found = _NOTES.search(text)
    notes = found["notes"] if found else ""
    for written, meant in _LIMITS:
        notes = written.sub(meant, notes)
    return Row(typed.strip(), text[: found.start()] if found else text, notes)


def _bench_rows(parser: argparse.ArgumentParser) -> tuple[list[Row], list[Row]]:
    rows = [_bench_row(action) for action in parser._actions if "--help" not in action.option_strings]
    return [row for row in rows if not row.typed.startswith("-")], [row for row in rows if row.typed.startswith("-")]


def _bench_row(action: argparse.Action) -> Row:
    choices = f"[{'|'.join(map(str, action.choices))}]" if action.choices else ""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    value = "" if action.nargs == 0 else choices or metavar
    return _row(" ".join(filter(None, [", ".join(action.option_strings), value])), action.help or "")
