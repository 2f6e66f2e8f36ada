"""The record of what an engine has begun: what a reader in another process sees, and when it cannot tell."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.engine.api.inflight_log import CORE, GRAMMARS, TEXT, AdmissionFile, Admissions, admissions_in, client_id

SESSION = str(uuid.UUID(int=7))
WRITER = """
import os, signal, sys
from pathlib import Path
from thothy_ai.engine.api.inflight_log import CORE, AdmissionFile
admissions = AdmissionFile.create(Path(sys.argv[1]), sys.argv[2]).writable(CORE)
for number in range(4):
    admissions.enter(f"1.job-{number}")
admissions.leave("1.job-2")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "e.sock.admitted"


def test_a_process_that_is_killed_leaves_what_it_had_begun(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WRITER, str(path), SESSION], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.stat().st_mode & 0o777 == 0o600
    file = AdmissionFile.open(path, SESSION)
    assert file is not None
    assert file.begun(["job-0", "job-1", "job-2", "job-3", "job-4"]) == ("job-0", "job-1", "job-3")
    assert file.begun(["9.job-0\x001", "9.job-4"]) == ("9.job-0\x001",)  # as the engine knows them


def test_each_thread_has_slots_of_its_own(path: Path) -> None:
    made = AdmissionFile.create(path, SESSION)
    text, grammars, core = (made.writable(part) for part in (TEXT, GRAMMARS[0], CORE))
    with text.entered("1.a"), grammars.entered("1.b"):
        core.enter("1.c")
        assert made.begun(["a", "b", "c"]) == ("a", "b", "c")
    core.enter("1.c")  # again: resumed after a preemption
    assert made.begun(["a", "b", "c"]) == ("c",)
    core.leave("1.c")
    core.leave("1.never")
    assert made.begun(["a", "b", "c"]) == ()


def test_a_request_with_candidates_is_there_until_the_last_of_them_ends(path: Path) -> None:
    made = AdmissionFile.create(path, SESSION)
    core = made.writable(CORE)
    core.enter("1.a")
    core.enter("1.a\x001")
    core.leave("1.a")
    assert made.begun(["a"]) == ("a",)
    core.leave("1.a\x001")
    assert made.begun(["a"]) == ()


def test_with_too_many_nobody_can_tell(path: Path) -> None:
    made = AdmissionFile.create(path, SESSION)
    core = made.writable(CORE)
    for number in range(CORE.slots + 1):
        core.enter(f"1.{number}")
    file = AdmissionFile.open(path, SESSION)
    assert file is not None
    assert file.begun(["any"]) == ("any",)


def test_a_reader_keeps_its_session_s_file_when_another_engine_replaces_it(path: Path) -> None:
    AdmissionFile.create(path, SESSION).writable(CORE).enter("1.a")
    old = AdmissionFile.open(path, SESSION)
    other = str(uuid.UUID(int=8))
    AdmissionFile.create(path, other)
    assert old is not None
    assert old.begun(["a"]) == ("a",)
    assert AdmissionFile.open(path, SESSION) is None
    AdmissionFile.remove(path, SESSION)
    assert AdmissionFile.open(path, other) is not None
    AdmissionFile.remove(path, other)
    AdmissionFile.remove(path, other)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"x" * 10, b"x" * 100_000])
def test_a_file_that_is_something_else_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    assert AdmissionFile.open(path, SESSION) is None
    assert AdmissionFile.open(tmp_path / "none", SESSION) is None
    (tmp_path / "link").symlink_to(path)
    assert AdmissionFile.open(tmp_path / "link", SESSION) is None


def test_without_a_file_it_is_the_same_and_nobody_reads_it() -> None:
    admissions: Admissions = admissions_in(None, CORE)
    admissions.enter("1.a")
    admissions.leave("1.a")


@given(st.text(st.characters(exclude_characters="\0")), st.integers(0, 10**9), st.integers(1, 64))
def test_a_client_s_id_is_found_in_the_engine_s(id_: str, connection: int, candidate: int) -> None:
    assert client_id(f"{connection}.{id_}") == client_id(f"{connection}.{id_}\0{candidate}") == id_
