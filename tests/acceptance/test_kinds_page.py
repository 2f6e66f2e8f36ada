"""docs/kinds.md, followed word for word in an empty folder: files saved as told, commands typed as printed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.server_folder import server_folder

PAGE = (Path(__file__).parents[2] / "docs" / "kinds.md").read_text("utf-8")
# A reader's text is one of these in turn: "... save it as `quiz.py`:", then the file; or a block of commands.
FILE = re.compile(r"[Ss]ave (?:it|this) as `(\w+\.py)`:\n+```python\n(.*?)```", re.DOTALL)
COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)
CHANGE = re.search(r"```diff\n (.*)\n\+(.*)\n```", PAGE)
SHADOWS = ("jobs", "engine", "kernels", "queue", "types")  # files that a folder of one's own may well have


class Reader:
    """What the page asks a reader for: an empty folder, two terminals, and `thothy` on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("THOTHY_", "PYTHON"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**kept, "PATH": path, "OMP_NUM_THREADS": "1"}

    def save_files(self) -> None:
        for name, text in FILE.findall(PAGE):
            (self.folder / name).write_text(text, "utf-8")

    def type(self, block: str, *codes: int) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
        assert done.returncode in (codes or (0,)), f"{block}: {done.stdout}{done.stderr}"
        return done

    @contextmanager
    def service(self, block: str) -> Iterator[None]:
        """The first terminal, in which the service runs until Ctrl-C."""
        stack = subprocess.Popen(
            ["bash", "-c", block],
            cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            assert stack.stdout is not None
            while "Ctrl-C" not in (line := stack.stdout.readline()):
                assert line, [log.read_text() for log in self.folder.glob(".thothy/logs/*")]
            yield
        finally:
            os.killpg(stack.pid, signal.SIGINT)
            stack.communicate(timeout=PATIENCE)


@pytest.fixture
def reader() -> Iterator[Reader]:
    with server_folder("thothy-kinds-") as folder:
        yield Reader(folder)


@pytest.mark.timeout(1800)
def test_a_stranger_reaches_a_kind_of_their_own(reader: Reader) -> None:
    reader.save_files()
    for name in SHADOWS:
        (reader.folder / f"{name}.py").write_text("raise RuntimeError('shadowed')\n")
    text, service, *blocks = COMMANDS.findall(PAGE)
    reader.type(text)
    said = []
    with reader.service(service):
        for block in blocks:
            if block.startswith("python"):  # it puts its own folder first, before the standard library
                for name in SHADOWS[-2:]:
                    (reader.folder / f"{name}.py").unlink()
            if "thothy ask" not in block:
                said.append(reader.type(block).stdout)
            else:
                said += [reader.type(command, 0, 1).stdout for command in block.splitlines()]
    exported = [json.loads(line) for line in (reader.folder / "questions.jsonl").read_text("utf-8").splitlines()]
    assert {artifact["kind"] for artifact in exported} <= {"quiz_question"}
    assert "quiz_question" in said[0]
    assert said[1].strip().endswith("?")  # what produce.py printed

    assert CHANGE
    kind = (reader.folder / "quiz.py").read_text("utf-8")
    assert kind.count(CHANGE[1]) == 1
    (reader.folder / "quiz.py").write_text(kind.replace(CHANGE[1], f"{CHANGE[1]}\n{CHANGE[2]}"), "utf-8")
    assert "--audience" in reader.type("THOTHY_KINDS=quiz thothy enqueue quiz_question --help").stdout
