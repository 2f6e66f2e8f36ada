"""GGUF files that are split into parts: any part finds all, and parts that do not belong together are refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch
from gguf import GGMLQuantizationType as Quant

from tests.support.gguf_files import split_gguf, write_gguf
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.model_check.check import check_model
from thothy_ai.engine.weights.loader import LoadedModel

TOKENS = list(range(3, 28))
Parts = list[Path]


def load(path: Path, cache: Path, weights: str = "auto") -> LoadedModel:
    return load_model(path, device=torch.device("cpu"), dtype=torch.float32, weights=weights, cache_dir=cache)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tiny_model("llama", tmp_path, hidden_size=96, intermediate_size=160)
    return write_gguf(folder, tmp_path / "tiny.gguf", architecture="llama", choose=lambda name: Quant.Q8_0)


@pytest.fixture
def parts(whole: Path) -> Parts:
    return split_gguf(whole, whole.parent / "parts", 3)


@pytest.mark.parametrize("weights", ["auto", "stored"])
@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_is_the_model(given: int, weights: str, whole: Path, parts: Parts, tmp_path: Path) -> None:
    assert [part.name for part in parts] == [f"tiny-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    models = [load(path, tmp_path / "cache", weights) for path in (whole, parts[given])]
    got, wanted = (PagedRun(loaded.model, 1, 32).step({0: TOKENS})[0] for loaded in models)
    assert torch.equal(got, wanted)
    assert models[1].name == "tiny"


def test_a_change_of_any_part_is_noticed(parts: Parts, tmp_path: Path) -> None:
    load(parts[0], tmp_path / "cache")
    parts[2].touch()
    load(parts[0], tmp_path / "cache")
    assert len([*(tmp_path / "cache" / "gguf").iterdir()]) == 2


def test_the_check_counts_the_parts(whole: Path, parts: Parts) -> None:
    options = EngineOptions(url="", device="cpu", max_context=128, max_rows=4)
    reports = [check_model(path, replace(options, model=path)) for path in (whole, parts[1])]
    assert [report.files for report in reports] == [1, 3]
    assert reports[0].stored == reports[1].stored
    assert reports[0].parameters == reports[1].parameters


def test_the_check_plans_what_stays_quantized(parts: Parts) -> None:
    options = EngineOptions(url="", device="cpu", max_context=128, max_rows=4, model=parts[0])
    memories = [check_model(parts[0], replace(options, weights=each)).memory for each in ("auto", "stored")]
    assert [memory.dtype for memory in memories if memory] == ["float32", "gguf"]
    assert memories[1].weights < 0.6 * memories[0].weights  # type: ignore[union-attr]


def cut(parts: Parts) -> None:
    parts[2].write_bytes(parts[2].read_bytes()[:-100])


def swapped(parts: Parts) -> None:
    one, other = parts[1].read_bytes(), parts[2].read_bytes()
    parts[1].write_bytes(other)
    parts[2].write_bytes(one)


def of_two(parts: Parts) -> None:
    for number, part in enumerate(split_gguf(parts[0].parent.parent / "tiny.gguf", parts[0].parent / "two", 2)):
        shutil.copy(part, parts[number])


def twice(parts: Parts) -> None:
    reader = gguf.GGUFReader(parts[0])
    writer = gguf.GGUFWriter(parts[1], "llama")
    writer.add_uint16("split.no", 1)
    writer.add_uint16("split.count", 3)
    tensor = reader.tensors[0]
    writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def of_another_split(parts: Parts) -> None:
    """Its second part has fewer tensors."""
    folder = tiny_model("llama", parts[0].parent, hidden_size=96, intermediate_size=160, num_hidden_layers=1)
    other = write_gguf(folder, parts[0].parent / "tiny.gguf", architecture="llama", choose=lambda name: Quant.Q8_0)
    shutil.copy(split_gguf(other, parts[0].parent / "other", 3)[2], parts[2])


WRONG: dict[str, tuple[Callable[[Parts], object], str]] = {
    "missing": (lambda parts: parts[1].unlink(), "part tiny-00002-of-00003.gguf is missing"),
    "two are missing": (
        lambda parts: [part.unlink() for part in parts[1:]],
        "00002-of-00003.gguf is missing and 1 oth",
    ),
    "truncated": (cut, "00003-of-00003.gguf: truncated or not a GGUF file"),
    "swapped": (swapped, r"00002-of-00003.gguf: the metadata says part 3 of 3"),
    "of two": (of_two, r"00001-of-00003.gguf: the metadata says part 1 of 2"),
    "a tensor twice": (twice, "is in two parts, tiny-00001-of-00003.gguf and tiny-00002-of-00003.gguf"),
    "of another model": (of_another_split, r"tensor '.*' is in two parts|the parts have \d+ tensors, the metadata of"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_parts_that_are_wrong(fault: str, parts: Parts, tmp_path: Path) -> None:
    change, says = WRONG[fault]
    change(parts)
    with pytest.raises(ModelLoadError, match=says) as caught:
        load(parts[0], tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_a_part_under_another_name(parts: Parts, tmp_path: Path) -> None:
    shutil.copy(parts[0], tmp_path / "renamed.gguf")
    with pytest.raises(ModelLoadError, match=r"one of 3 parts, whose name does not end in -00001-of-00003"):
        load(tmp_path / "renamed.gguf", tmp_path / "cache")


@pytest.mark.parametrize("name", ["tiny-00004-of-00003.gguf", "tiny-00000-of-00003.gguf"])
def test_a_number_beyond_the_count(name: str, parts: Parts, tmp_path: Path) -> None:
    shutil.copy(parts[0], parts[0].with_name(name))
    with pytest.raises(ModelLoadError, match=r"there is no part [04] of 3"):
        load(parts[0].with_name(name), tmp_path / "cache")


def test_a_whole_model_named_like_a_part(whole: Path, tmp_path: Path) -> None:
    named = shutil.copy(whole, tmp_path / "one-00001-of-00001.gguf")
    assert load(Path(named), tmp_path / "cache").name == "one"
