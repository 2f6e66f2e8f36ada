"""The command line of a service process, its ports, and a start that is interrupted."""

from __future__ import annotations

import secrets
import socket
import subprocess
from itertools import chain, repeat
from pathlib import Path

import pytest

from thothy_ai.embedded.process import Process, Program, free_ports, service_argv


def test_a_service_is_not_imported_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "thothy_ai.py").write_text("raise SystemExit('the wrong module')")
    done = subprocess.run(service_argv("worker", "--help"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "thothy worker" in done.stdout


def test_consecutive_ports_are_free_and_below_those_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = secrets.randbelow
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_ports(1)))
        port = taken.getsockname()[1]
        draws = chain([port - 2 - 10_000], map(draw, repeat(20_000)))
        monkeypatch.setattr(secrets, "randbelow", lambda _: next(draws))
        first = free_ports(4)
    assert port not in range(first, first + 4)
    assert first + 4 <= 32_768


def test_a_program_is_stopped_if_ctrl_c_comes_while_it_is_spawned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("thothy_ai.embedded.process.futures.wait", interrupted)
    process = Process(Program("sleeper", ("sleep", "600"), tmp_path / "log", ready=lambda: True))
    with pytest.raises(KeyboardInterrupt):
        process.start()
    assert process.pid is not None, "it had been started"
    assert not process.alive
