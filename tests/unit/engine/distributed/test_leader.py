"""A group that can't be started says why, and a rank that dies takes the group down at once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.engine_driver import EngineDriver
from tests.support.hold import Hold
from tests.support.loading import load_model
from tests.support.oracle import ROOMY
from tests.support.patience import PATIENCE
from tests.support.tiny_models import tiny_model
from tests.support.two_ranks import START, SharedModel, two_ranks
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest, StepFailedError
from thothy_ai.engine.api.errors import InvalidRequestError, ModelLoadError
from thothy_ai.engine.distributed import leader
from thothy_ai.engine.distributed.leader import Group

LONG = SamplingParams(max_tokens=10_000, ignore_eos=True)


def test_a_rank_that_never_comes_up_ends_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "rank_that_sleeps.py").write_text("import time; time.sleep(600)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(leader, "_MODULE", "rank_that_sleeps")
    monkeypatch.setattr(leader, "_FIND_SECONDS", 0.3)
    with pytest.raises(ModelLoadError, match=r"rank 1 has not come up within 0\.3 s"):
        Group(START)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("raise SystemExit(3)", "rank 1's process ended with status 3"),
        ("import os; os.kill(os.getpid(), 9)", "rank 1's process was killed by SIGKILL"),
    ],
)
def test_a_rank_that_dies_at_its_start_is_noticed_at_once(
    script: str, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rank_that_dies.py").write_text(script)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(leader, "_MODULE", "rank_that_dies")
    with pytest.raises(ModelLoadError, match=says):
        Group(START)


def test_different_code_on_a_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "CODE", "of before")
    with pytest.raises(ModelLoadError, match="rank 1 runs different code from rank 0"):
        Group(START)


def test_a_group_that_closes_keeps_no_runner(tmp_path: Path) -> None:
    """NCCL would wait for the end of its graphs, or for that of a model's before the next one."""
    folder = tiny_model("llama", tmp_path, vocab_size=700)
    options, runners = replace(ROOMY, model=folder), []
    with two_ranks() as group:
        shared = SharedModel(group, folder)
        for _ in range(2):
            with EngineDriver(lambda on_events: shared.build(None, options, on_events)) as driver:
                driver.run([CoreRequest("0", (5, 6, 7), SamplingParams(max_tokens=4, ignore_eos=True))])
                runners.append(weakref.ref(driver.core._launcher._runner._runner))
            assert runners[-1]() is not None
            del driver
            left = [each for each in runners[:-1] if each() is not None]
            assert not left
    assert runners[-1]() is None


def test_a_process_runs_the_code_that_it_imported_whatever_lies_on_the_disk_later(tmp_path: Path) -> None:
    package = Path(leader.__file__).parents[2]
    root = tmp_path / "thothy_ai"
    root.mkdir()
    (root / "__init__.py").touch()
    for name in ("engine", "kernels"):
        shutil.copytree(package / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    changed = root / "kernels" / "rotary.py"
    lines = [
        "from thothy_ai.engine.distributed import code",
        f"open({str(changed)!r}, 'a').write('# changed')",
        "print(code.__file__, code.CODE, code._digest())",
    ]
    ran = subprocess.run(
        [sys.executable, "-P", "-c", "; ".join(lines)],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    file, imported, on_disk = ran.stdout.split()
    assert file == str(root / "engine" / "distributed" / "code.py")
    assert imported == leader.CODE != on_disk


def files_of_ranks() -> list[str]:
    """The files of this process that carry steps to other ranks."""
    found = []
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder itself
            found.append(str(file.readlink()))
    return [name for name in found if "thothy-steps" in name]


def test_what_was_started_is_ended_and_closed_if_not_all_ranks_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rank_that_sleeps.py").write_text("import time; time.sleep(600)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(leader, "_MODULE", "rank_that_sleeps")
    original, children, before = leader.start_child, [], len(files_of_ranks())

    def start_one(*arguments):
        if children:
            raise BlockingIOError("no more processes")
        children.append(original(*arguments))
        return children[0]

    monkeypatch.setattr(leader, "start_child", start_one)
    with pytest.raises(BlockingIOError, match="no more processes"):
        Group(replace(START, tensor_parallel=3))
    assert children[0][0].returncode == -signal.SIGKILL
    assert len(files_of_ranks()) <= before  # fewer, if the collector has been there


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs")
def test_devices_that_are_not_there_are_counted() -> None:
    with pytest.raises(InvalidRequestError, match="torch sees 0 GPUs"):
        Group(replace(START, device="cuda"))


@pytest.mark.parametrize("options", [{"adapters": ("voice=folder",)}, {"adapter_slots": 4}])
def test_adapters_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match="adapters and --tensor-parallel 2 cannot be combined"):
        Group(replace(START, **options))


def test_a_rank_that_dies_names_the_step_s_members(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Even if its process is there for longer than others wait for a rank that is said to be lost."""
    monkeypatch.setattr(leader, "_GRACE_SECONDS", 0.5)
    told, end = threading.Event(), leader._OtherRank._end
    monkeypatch.setattr(leader._OtherRank, "_end", lambda rank: (told.wait(1.0), end(rank))[1])
    folder = tiny_model("llama", tmp_path)
    loaded = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    hold = Hold()  # no request ends before the rank
    with two_ranks() as group, EngineDriver(lambda on_events: SharedModel(group, folder).build(
        loaded, ROOMY, hold.over(on_events)
    )) as driver:  # fmt: skip
        with monkeypatch.context() as at_once:
            at_once.setattr(group._ending, "wait", pytest.fail)
            with pytest.raises(torch.OutOfMemoryError), group.blaming():
                raise torch.OutOfMemoryError("of this rank, which tries again")
        for name in ("one", "two"):
            driver.submit(CoreRequest(name, (1, 2, 3), replace(LONG, max_tokens=40)))
        driver.submit(CoreRequest("three", (1, 2, 3), replace(LONG, max_tokens=50)))
        driver.core.start()
        hold.reached()
        os.kill(group._others[0]._process.pid, signal.SIGKILL)
        hold.release()
        assert driver.core.join(PATIENCE)
        failure = driver.core.failure
        assert isinstance(failure, StepFailedError)
        assert failure.members
        assert {"one", "two", "three"} >= set(failure.members)
        assert "rank 1's process was killed by SIGKILL" in str(failure)
