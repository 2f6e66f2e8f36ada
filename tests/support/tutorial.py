"""Reads a page such as `docs/tutorial.md` and plays it in two terminals, word for word.

A `bash` block is typed. A `text` block is what the block above it prints; `…` stands for what differs from run to run,
a line of it for any number of lines. A block with `make install` is not typed. A block with `thothy up` is typed into
the first terminal, where it stays; everything else into the second one. A `text` block that begins with `^C` is what
Ctrl-C in the first terminal leads to.

`python -m tests.support.tutorial FOLDER [PAGE]` plays it, prints it, and writes every screen into the folder, as text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.server_folder import server_folder
from tests.support.terminal import Ran, Terminal
from thothy_ai.embedded.process import free_ports

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/tutorial.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEREDOC = re.compile(r"<<-?\s*'?(\w+)'?")


@dataclass(frozen=True, slots=True)
class Step:
    """What is typed, as commands of one or more lines, and what is printed (None: the page does not say)."""

    commands: tuple[tuple[str, ...], ...]
    expected: tuple[str, ...] | None

    @property
    def stays(self) -> bool:
        """Whether it runs until Ctrl-C."""
        return self.types("thothy up")

    @property
    def stops(self) -> bool:
        """Whether it is the Ctrl-C."""
        return not self.commands

    def types(self, words: str) -> bool:
        """Whether these words are typed."""
        return any(words in line for command in self.commands for line in command)


@dataclass(frozen=True, slots=True)
class Played:
    """A step that was played: its commands as they ended, and what was on the screen."""

    step: Step
    rows: list[str]
    ran: tuple[Ran, ...] = ()

    @property
    def as_written(self) -> bool:
        """Whether the page shows what was printed."""
        return self.step.expected is None or agrees(self.step.expected, self.rows)


def steps(page: Path = PAGE) -> list[Step]:
    """The steps of the page, without the installation."""
    found: list[Step] = []
    for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        lines = tuple(text.splitlines())
        if language == "bash":
            found.append(Step(tuple(_commands(lines)), None))
        elif language == "text" and lines[0].startswith("^C"):
            found.append(Step((), lines[1:]))
        elif language == "text":
            found[-1] = Step(found[-1].commands, lines)
    return [step for step in found if not step.types("make install")]


def _commands(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The commands of a block: continued lines and here-documents belong together."""
    command: list[str] = []
    ending: str | None = None
    for line in lines:
        command.append(line)
        if ending is None and (found := _HEREDOC.search(line)):
            ending = found[1]
        elif line == ending:
            ending = None
        if ending is None and not line.endswith("\\"):
            yield tuple(command)
            command = []
    assert not command, f"the block ends within a command: {command}"


def agrees(expected: tuple[str, ...], rows: list[str]) -> bool:
    """Whether the rows are those expected: `…` stands for any text, a line of it for any lines, blanks for blanks."""
    parts = [r"(?:.*\n)*?" if line.strip() == "…" else _pattern(line) + r"[ ]*\n" for line in expected]
    return re.fullmatch("".join(parts) + r"\s*", "".join(f"{row}\n" for row in rows)) is not None


def _pattern(line: str) -> str:
    words = [r".*".join(map(re.escape, word.split("…"))) for word in line.split()]
    indent = "[ ]+" if line.startswith(" ") else ""
    return indent + "[ ]+".join(words)


class Tutorial:
    """Plays a page in a folder of its own."""

    def __init__(self, folder: Path, page: Path = PAGE) -> None:
        (folder / ".venv").symlink_to(ROOT / ".venv" if (ROOT / ".venv").exists() else sys.prefix)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("THOTHY_")}
        environment = kept | {"PATH": f"{folder}/.venv/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        environment["THOTHY_METRICS_PORT"] = str(free_ports(20))  # other tests start stacks at the same moment
        self.service = Terminal(folder, environment)
        self.shell = Terminal(folder, environment)
        self.folder, self.page = folder, page

    def play(self) -> Iterator[Played]:
        """Every step, as it ended."""
        for step in steps(self.page):
            if step.stops:
                yield self._stop(step)
            elif step.stays:
                yield self._start(step)
            else:
                ran = tuple(self.shell.run(*command) for command in step.commands)
                self.service.pump()
                yield Played(step, [row for each in ran for row in each.rows], ran)

    def _start(self, step: Step) -> Played:
        (command,) = step.commands
        self.service.start(*command)
        return Played(step, self.service.wait_for(lambda rows: agrees(step.expected or (), rows)))

    def _stop(self, step: Step) -> Played:
        before = len(self.service.rows())
        self.service.press("\x03")
        ran = self.service.ended()
        return Played(step, ran.rows[before - 1 :], (ran,))

    def close(self) -> None:
        """End both shells, and what still runs in them."""
        for terminal in (self.service, self.shell):
            terminal.press("\x03")
            with suppress(TimeoutError):
                terminal.ended()
            terminal.close()


@contextmanager
def tutorial(page: Path = PAGE) -> Iterator[Tutorial]:
    """A fresh folder with a page to play in it."""
    with server_folder("thothy-tutorial-") as folder:
        played = Tutorial(folder, page)
        try:
            yield played
        finally:
            played.close()


def record(to: Path, page: Path = PAGE) -> None:
    """Play a page, and write every screen of both terminals."""
    to.mkdir(parents=True, exist_ok=True)
    with tutorial(page) as played:
        for each in played.play():
            mark = "as written" if each.as_written else "DIFFERS"
            typed = [line for command in each.step.commands for line in command] or ["Ctrl-C"]
            print(f"--- {mark}\n" + "\n".join(f"$ {line}" for line in typed), *each.rows, sep="\n", flush=True)  # noqa: T201 - what it is for
        for name in ("service", "shell"):
            for number, frame in enumerate(getattr(played, name).frames):
                (to / f"{name}-{number:04}.txt").write_text(str(frame), encoding="utf-8")


if __name__ == "__main__":
    record(*map(Path, sys.argv[1:]))
