"""Where `thothy up` runs engines: one per GPU that is asked for, or several on the CPU; what cannot be is refused."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from thothy_ai.embedded.placement import ANYWHERE, pairs, placements
from thothy_ai.engine.process.gpus import Gpu, visible_gpus
from thothy_ai.errors import ConfigError
from thothy_ai.plans.judges import default_processes
from thothy_ai.settings import Settings

GPUS = (Gpu(0, "GPU-aaaa-0", "H200"), Gpu(1, "GPU-bbbb-1", "H200"), Gpu(2, "GPU-cccc-2", "L4"))


def test_without_a_word_there_is_one_engine_on_what_suits_it() -> None:
    assert placements(None, None, GPUS) == (ANYWHERE,)


@pytest.mark.parametrize(
    ("asked", "labels"), [("all", "012"), ("0,1", "01"), (" 2 , 0", "20"), ("GPU-bbbb-1", "1"), ("1", "1")]
)
def test_one_engine_per_gpu(asked: str, labels: str) -> None:
    found = placements(asked, None, GPUS)
    assert "".join(each.label for each in found) == labels
    assert [each.environment["CUDA_VISIBLE_DEVICES"] for each in found] == [GPUS[int(label)].uuid for label in labels]
    assert all(each.arguments == ("--device", "cuda") for each in found)


def test_an_engine_on_several_gpus_has_the_next_of_them() -> None:
    four = (*GPUS, Gpu(3, "GPU-dddd-3", "L4"))
    first, second = placements("0,2,3,1", None, four, 2)
    assert (first.label, second.label) == ("0-2", "3-1")
    assert first.environment == {"CUDA_VISIBLE_DEVICES": "GPU-aaaa-0,GPU-cccc-2"}
    assert first.arguments == ("--device", "cuda", "--tensor-parallel", "2")
    [anywhere] = placements(None, None, GPUS, 2)
    assert anywhere.arguments == ("--tensor-parallel", "2")
    with pytest.raises(ConfigError, match="--tensor-parallel 2 takes 2 GPUs for each engine, and --gpus names 3"):
        placements("all", None, GPUS, 2)
    for asked, engines in (("none", None), (None, 2)):
        with pytest.raises(ConfigError, match="--tensor-parallel is for GPUs"):
            placements(asked, engines, GPUS, 2)


def test_engines_on_the_cpu_share_its_cores() -> None:
    cores = os.cpu_count() or 1
    for number in (1, 2, 2 * cores):
        found = placements("none", number, GPUS)
        assert [each.label for each in found] == [str(label) for label in range(number)]
        assert {each.arguments for each in found} == {("--device", "cpu", "--threads", str(max(1, cores // number)))}
    assert placements("none", None, ()) == placements(None, 1, ())


@pytest.mark.parametrize(
    ("asked", "engines", "there", "says"),
    [
        ("all", None, (), "no NVIDIA GPU found"),
        ("0", None, (), "`--engines 2` runs two"),
        ("3", None, GPUS, r"there is no GPU '3'; available: 0 \(H200\), 1 \(H200\), 2 \(L4\)"),
        ("0,", None, GPUS, "'' is not a GPU"),
        ("0,0", None, GPUS, "names a GPU twice"),
        ("0,GPU-aaaa-0", None, GPUS, "names a GPU twice"),
        ("ALL", None, GPUS, "'ALL' is not a GPU"),
        ("all", 2, GPUS, "--engines is for engines on the CPU"),
    ],
)
def test_what_cannot_be_is_refused(asked: str, engines: int | None, there: tuple[Gpu, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        placements(asked, engines, there)


@pytest.mark.parametrize(
    ("visible", "indices"), [(None, [0, 1, 2]), ("", []), ("2,0", [2, 0]), ("GPU-bbbb", [1]), ("7", []), ("1,1", [1])]
)
def test_gpus_that_processes_may_use(visible: str | None, indices: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.index for gpu in visible_gpus(GPUS)] == indices


@pytest.mark.usefixtures("clean_environment")
def test_pairs_have_names_and_sockets_of_their_own(tmp_path: Path) -> None:
    found = pairs(Settings.load(), tmp_path, placements("1,2", None, GPUS))
    assert [(pair.engine, pair.worker) for pair in found] == [("engine-1", "worker-1"), ("engine-2", "worker-2")]
    assert [pair.settings.engine_name for pair in found] == [f"{socket.gethostname()}-{label}" for label in "12"]
    assert len({pair.settings.engine_url for pair in found}) == 2
    assert {pair.settings.judges for pair in found} == {default_processes(2)}
    named = pairs(Settings.load(engine_name="box"), tmp_path, placements("1", None, GPUS))
    assert [(pair.engine, pair.settings.engine_name) for pair in named] == [("engine", "box-1")]
    assert [pair.settings.judges for pair in pairs(Settings.load(judges=3), tmp_path, (ANYWHERE,))] == [3]
    [only] = pairs(Settings.load(), tmp_path, (ANYWHERE,))
    assert (only.engine, only.settings.engine_name) == ("engine", None)
