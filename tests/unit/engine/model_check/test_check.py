"""What `check_model` says is what an engine would: it loads, or what is in its way, with the figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.one_process import load_engine
from tests.support.gguf_files import write_gguf
from tests.support.tiny_containers import tiny_container
from tests.support.tiny_models import tiny_model
from tests.support.tiny_tokenizer import make_tokenizer
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.engine.api.errors import InvalidRequestError, ModelLoadError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.model_check.check import check_model
from thothy_ai.engine.model_check.report import ModelReport
from thothy_ai.engine.weights.random import MARKER

ON_A_CPU = EngineOptions(url="", device="cpu", max_context=128, max_rows=4)
GB = 10**9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tiny_model("llama", tmp_path, vocab_size=700, max_shard_size="60KB")
    make_tokenizer().save_pretrained(made)
    return made


def checked(path: Path, **more: bool) -> ModelReport:
    return check_model(path, replace(ON_A_CPU, model=path), **more)


def test_a_folder_that_loads(folder: Path) -> None:
    report = checked(folder)
    engine = load_engine(replace(ON_A_CPU, model=folder))
    info, planned = engine.backend.info(), engine.backend.stats().memory.planned_bytes
    engine.backend.stop()
    engine.wait_ended()
    assert report.loads
    assert report.problems == ()
    assert (report.family, report.container, report.layers, report.rope) == ("llama", None, 3, "default")
    assert (report.parameters, report.context) == (info.parameters, info.max_context)
    assert report.files == len([*folder.glob("model-*.safetensors")])
    assert report.stored == {"float32": 4 * info.parameters}
    assert report.text is not None
    assert (report.text.file, report.text.ends) == ("tokenizer.json", ("<|im_end|>",))
    assert report.memory is not None
    assert report.memory.kv_tokens > 1000
    assert report.memory.kv_bytes_per_token == 2 * 3 * 2 * 16 * 4
    pool = info.num_blocks * info.block_size * report.memory.kv_bytes_per_token
    assert report.memory.weights + report.memory.workspace + pool == planned


def test_options_of_the_template(folder: Path) -> None:
    template = "{% set y = 1 %}{{ messages }}{{ bos_token }}{{ y }}{% if enable_thinking %}{{ effort }}{% endif %}"
    (folder / "chat_template.jinja").write_text(template)
    report = checked(folder)
    assert report.text is not None
    assert report.text.template_options == ("effort", "enable_thinking")
    (folder / "chat_template.jinja").write_text("{% if %}")
    assert "the chat template can't be compiled" in only_problem(checked(folder), "tokenizer")


@pytest.mark.parametrize(("size", "loads"), [(446, True), (445, True), (444, False)])
def test_a_token_of_each_prompt_that_the_model_lacks(size: int, loads: bool, tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>", "<unused>"]})  # 444 and 445
    tokenizer.chat_template = "{% for m in messages %}<turn>{{ m.content }}{% endfor %}"
    made = tiny_model("llama", tmp_path, vocab_size=size)
    tokenizer.save_pretrained(made)
    if loads:
        assert checked(made).loads
    else:
        message = only_problem(checked(made), "tokenizer")
        assert "each chat prompt has the token '<turn>', and the model has no embedding for it" in message


def test_a_template_that_loses_texts(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content.text }}{% endfor %}")
    assert "writes nothing of a user's message" in only_problem(checked(folder), "tokenizer")


def only_problem(report: ModelReport, part: str) -> str:
    assert not report.loads
    [problem] = report.problems
    assert problem.part == part
    assert "\n" not in problem.says
    assert report.path in problem.says
    return problem.says


def _cut_a_shard(folder: Path) -> None:
    shard = min(folder.glob("model-*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])


def _claim_more_layers(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 4}))


def _widen(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 81}))


def _no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def _packed_type(folder: Path) -> None:
    """One weight in fp8, of which config.json says nothing."""
    shard = min(folder.glob("model-*.safetensors"))
    tensors = load_file(shard)
    name = min(tensors)
    save_file(tensors | {name: tensors[name].to(torch.float8_e4m3fn)}, shard)


def _say_quantized(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    awq = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": awq}))


FAULTS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "architecture": (lambda f: (f / "config.json").write_text('{"model_type": "mamba"}'), "configuration", "'mamba'"),
    "no configuration": (lambda f: (f / "config.json").unlink(), "configuration", "no config.json"),
    "cut": (_cut_a_shard, "weights", "truncated"),
    "layers": (_claim_more_layers, "weights", "model.layers.3.* is missing"),
    "shape": (_widen, "weights", r"has shape \(80, 48\), the configuration wants \(81, 48\)"),
    "a type of quantized weights": (_packed_type, "weights", r"is torch\.float8_e4m3fn: quantized weights"),
    "quantized, it says": (_say_quantized, "weights", "quantization_config says awq, but no tensor is quantized"),
    "no tokenizer": (_no_tokenizer, "tokenizer", r"has no tokenizer\.json"),
    "broken tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer", "can't be read"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_in_its_way(fault: str, folder: Path) -> None:
    breaks, part, says = FAULTS[fault]
    breaks(folder)
    report = checked(folder)
    message = only_problem(report, part)
    with pytest.raises(ModelLoadError, match=says) as caught:
        load_engine(replace(ON_A_CPU, model=folder))
    if part != "tokenizer" or fault != "no tokenizer":
        assert message == str(caught.value), "as the engine says it"
    assert (report.text is None) == (part == "tokenizer"), "the tokenizer is looked at all the same"


def test_several_problems_at_once(folder: Path) -> None:
    _cut_a_shard(folder)
    _no_tokenizer(folder)
    assert [problem.part for problem in checked(folder).problems] == ["weights", "tokenizer"]


def test_values_that_are_not_finite(folder: Path) -> None:
    assert checked(folder, values=True).values_checked
    shard = min(folder.glob("model-*.safetensors"))
    tensors = load_file(shard)
    name = min(tensors)
    tensors[name].view(-1)[:3] = torch.tensor([float("nan"), float("inf"), 1.0])
    save_file(tensors, shard)
    assert checked(folder).loads, "unless asked"
    message = only_problem(checked(folder, values=True), "weights")
    assert f"tensor {name!r}: 2 of {tensors[name].numel():,} values are NaN or infinite" in message


def test_a_model_that_is_larger_than_the_device(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SHAPES["llama-8b"] | {"eos_token_id": 2}))
    (folder / MARKER).touch()
    make_tokenizer().save_pretrained(folder)
    options = EngineOptions(url="")
    small, large = (check_model(folder, options, memory=size * GB) for size in (16, 80))
    [problem] = small.problems
    assert problem == ("memory", "large needs 16.1 GB for weights in bfloat16, and cuda has 14.4 GB available")
    assert large.loads
    assert large.memory is not None
    assert (large.memory.kv_bytes_per_token, large.memory.dtype) == (2 * 32 * 8 * 128 * 2, "bfloat16")
    left = large.memory.available - large.memory.weights - large.memory.workspace
    assert 0 <= left - large.memory.kv_tokens * large.memory.kv_bytes_per_token < 100 * large.memory.kv_bytes_per_token
    halved = check_model(folder, replace(options, weights="fp8", kv_dtype="fp8"), memory=16 * GB)
    assert halved.loads
    assert halved.memory is not None
    assert halved.memory.weights < 0.6 * large.memory.weights
    assert not torch.cuda.is_initialized(), "no GPU was asked"


def test_the_text_part_of_a_multimodal_checkpoint(tmp_path: Path) -> None:
    folder = tiny_container("mistral3", tmp_path)
    make_tokenizer().save_pretrained(folder)
    report = checked(folder)
    assert report.loads
    assert (report.family, report.container) == ("mistral", "mistral3")


def test_a_gguf_file_is_not_converted(folder: Path, tmp_path: Path) -> None:
    whole = tiny_model("llama", tmp_path / "whole")
    path = write_gguf(whole, tmp_path / "tiny.gguf", architecture="llama")
    report = check_model(path, replace(ON_A_CPU, model=path, cache_dir=tmp_path / "cache"), values=True)
    assert (report.form, report.family, report.values_checked) == ("GGUF file", "llama", True)
    assert report.stored == {"F32": sum(report.stored.values())}
    assert [problem.part for problem in report.problems] == ["tokenizer"], "this one has none"
    assert not (tmp_path / "cache").exists()
    path.write_bytes(path.read_bytes()[:200])
    assert "not a GGUF file" in only_problem(checked(path), "configuration")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no such file or folder"):
        checked(tmp_path / "nothing")
    (tmp_path / "model.bin").touch()
    with pytest.raises(ModelLoadError, match="neither a Hugging Face folder"):
        checked(tmp_path / "model.bin")
    with pytest.raises(InvalidRequestError, match="unknown device"):
        check_model(tiny_model("llama", tmp_path), EngineOptions(url="", device="nothing"))
