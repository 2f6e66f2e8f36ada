"""`thothy models check`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.tiny_models import tiny_model
from tests.support.tiny_tokenizer import make_tokenizer
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.cli import app
from thothy_ai.cli.commands.models import _bytes
from thothy_ai.engine.weights.random import MARKER


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tiny_model("llama", tmp_path, vocab_size=700, max_shard_size="60KB")
    make_tokenizer().save_pretrained(made)
    return made


def check(*arguments: object, exit_code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["models", "check", *map(str, arguments), "--device", "cpu"])
    assert done.exit_code == exit_code, done.stderr
    return done


def fields(text: str) -> dict[str, str]:
    return {line[:12].strip(): line[12:] for line in text.splitlines()}


def test_a_model_that_loads(folder: Path) -> None:
    found = fields(check(folder).stdout)
    assert found["family"] == "llama"
    assert found["form"].startswith("Hugging Face folder, safetensors, ")
    assert found["tokenizer"] == f"tokenizer.json, {len(make_tokenizer())} tokens; ends: <|im_end|>"
    assert found["template"] == "yes, without options"
    assert "tokens left" in found["KV cache"]
    assert found["loads"] == "yes"
    assert "values" not in found
    assert fields(check(folder, "--nan").stdout)["values"] == "all were read"


def test_a_model_on_several_devices(folder: Path) -> None:
    alone, shared = (
        json.loads(check(folder, "--tensor-parallel", count, "--json").stdout)["memory"] for count in (1, 2)
    )
    assert shared["device"] == "each of 2 devices like cpu"
    assert shared["kv_bytes_per_token"] == alone["kv_bytes_per_token"] / 2
    assert alone["weights"] / 2 < shared["weights"] < alone["weights"]
    refused = fields(check(folder, "--tensor-parallel", 4, exit_code=1).stdout)["refused"]
    assert refused == "memory: 4 devices cannot share this model: it has 6 heads and 2 KV heads"


def test_a_model_that_does_not(folder: Path) -> None:
    shard = min(folder.glob("model-*.safetensors"))
    shard.write_bytes(b"x")
    done = check(folder, exit_code=1)
    found = fields(done.stdout)
    assert found["refused"].startswith(f"weights: {shard}: truncated")
    assert found["loads"] == "no"
    assert done.stderr == ""


def test_json(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages }}{{ enable_thinking }}")
    report = json.loads(check(folder, "--json", "--weights", "fp8", "--max-context", 64).stdout)
    assert (report["loads"], report["family"], report["context"]) == (True, "llama", 64)
    assert report["text"]["template_options"] == ["enable_thinking"]
    assert report["memory"]["dtype"] == "fp8"
    assert report["problems"] == []


def test_a_gpu_that_is_not_here(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES["llama-8b"] | {"eos_token_id": 2}))
    (tmp_path / MARKER).touch()
    make_tokenizer().save_pretrained(tmp_path)
    assert "has 72.00 GB for them" in fields(check(tmp_path, "--device-memory", "80GB").stdout)["memory"]
    refused = fields(check(tmp_path, "--device-memory", "16GB", exit_code=1).stdout)["refused"]
    assert "needs 16.1 GB for weights in bfloat16, and cuda has 14.4 GB available" in refused


def test_windows_give_memory_back(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES["gpt-oss-20b"] | {"eos_token_id": 2}))
    (tmp_path / MARKER).touch()
    make_tokenizer().save_pretrained(tmp_path)
    found = fields(check(tmp_path, "--device-memory", "80GB").stdout)
    left = int(found["KV cache"].split()[0].replace(",", ""))
    more = re.fullmatch(
        r"give memory back: room for ([\d,]+) in sequences of 2,000, [\d,]+ in .* 4,000", found["windows"]
    )
    assert more is not None
    assert 1.8 < int(more[1].replace(",", "")) / left < 1.9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/nowhere"], "/nowhere: no such file or folder"),
        ([__file__], "neither a Hugging Face folder nor a .gguf file"),
        ([".", "--dtype", "float3"], "dtype 'float3' is not supported"),
        ([".", "--weights", "int3"], "weights 'int3' are not supported"),
        ([".", "--kv-dtype", "int3"], "KV type 'int3' is not supported"),
        ([".", "--device-memory", "much"], "'much' is not a size such as 80GB"),
        ([".", "--device-memory", "0GB"], "'0GB' is not a size such as 80GB"),
    ],
)
def test_wrong_input_is_one_line_and_exits_2(arguments: list[str], words: str) -> None:
    done = check(*arguments, exit_code=2)
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("text", "size"), [("80GB", 80 * 10**9), ("1.5 gib", 3 * 2**29), ("12345", 12345), ("2TiB", 2**41)]
)
def test_sizes(text: str, size: int) -> None:
    assert _bytes(text) == size


def test_help_needs_no_torch() -> None:
    code = (
        "import sys; from thothy_ai.cli import app; import thothy_ai.cli.commands.models; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
