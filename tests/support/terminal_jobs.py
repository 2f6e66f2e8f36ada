"""A terminal of a given width in which commands are typed, as a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CTRL_C = "\x03"
_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_PASSED_ON = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}


@dataclass(frozen=True)
class Shown:
    """What a command showed, without colours, and its exit code."""

    text: str
    exit_code: int

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def in_terminal(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    columns: int = 80,
    typed: Mapping[str, str] | None = None,
) -> Shown:
    """Run a command in a terminal; where it shows a key of `typed`, its value is typed, once."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    everything = {**_PASSED_ON, "TERM": "xterm-256color", **environment}
    with subprocess.Popen(
        list(command), env=everything, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=_take_terminal,  # noqa: PLW1509 - so that Ctrl-C is a signal to it; the test has no threads
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = _read(ours, dict(typed or {}))
    os.close(ours)
    return Shown(_CODES.sub("", shown).replace("\r\n", "\n"), _as_a_shell_says(process.returncode))


def _as_a_shell_says(code: int) -> int:
    """A second Ctrl-C may have ended the interpreter while it was ending itself."""
    return 128 - code if code < 0 else code


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read(terminal: int, typed: dict[str, str]) -> str:
    shown = b""
    interrupted = False
    while True:
        if interrupted and not select.select([terminal], [], [], 1)[0]:
            os.write(terminal, CTRL_C.encode())  # the first may have come just before Python began to read
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            part = b""
        if not part:
            return shown.decode()
        shown += part
        for prompt in [prompt for prompt in typed if prompt in shown.decode(errors="replace")]:
            interrupted = typed[prompt] == CTRL_C
            os.write(terminal, typed.pop(prompt).encode())
