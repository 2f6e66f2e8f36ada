"""Which tokens end a text: the configuration's, the tokenizer's, and what the template writes after an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import models
from transformers import PreTrainedTokenizerFast

from tests.support.loading import load_model
from tests.support.tiny_models import FAMILIES, tiny_model
from tests.support.tiny_tokenizer import make_tokenizer
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.configuration import read_configuration

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("own", "named", "ends"),
    [("<end>", 5, (5, 3)), ("<end>", [3, 5], (3, 5)), ("<far>", 5, (5,)), (None, 5, (5,)), ("<end>", None, (3,))],
)
def test_the_tokenizer_s_end_of_text_counts_beside_the_configuration_s(
    tmp_path: Path, own: str | None, named: object, ends: tuple[int, ...]
) -> None:
    folder = tiny_model("llama", tmp_path, eos_token_id=named)
    (folder / "generation_config.json").unlink(missing_ok=True)
    backend = tokenizers.Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "c": 2, "<end>": 3, "<far>": 131}, merges=[]))
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=own).save_pretrained(folder)
    assert load_model(folder, device=CPU, dtype=torch.float32).config.eos_token_ids == ends


def end_tokens(folder: Path, tokenizer: PreTrainedTokenizerFast | None, **configured: object) -> tuple[int, ...]:
    """Of a model whose two configurations have these tokens, with this tokenizer."""
    for name, value in configured.items():
        path = folder / f"{name}.json"
        content = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps(content | {"eos_token_id": value}))
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return load_model(folder, device=CPU, dtype=torch.float32).config.eos_token_ids


def test_end_tokens_of_all_that_name_some(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, vocab_size=700)
    assert end_tokens(folder, make_tokenizer(), config=[5, 6], generation_config=[6, 9]) == (5, 6, 9, 2)
    assert end_tokens(folder, None, config=None, generation_config=None) == (2,), "the tokenizer's alone"
    assert end_tokens(folder, None, config=-1, generation_config=700) == (2,), "others are beyond the vocabulary"


@pytest.mark.parametrize(
    ("text", "container"),
    [(FAMILIES, None), (("gpt2", "opt", "olmo", "phi"), None), (("llama", "gemma3_text"), "llava")],
)
def test_a_default_of_transformers_ends_nothing(text: tuple[str, ...], container: str | None, tmp_path: Path) -> None:
    """2 for Llama and Mistral, 1 for Gemma, 50256 for GPT-2: ordinary tokens in other vocabularies."""
    for family in text:
        content = (
            {"model_type": family}
            if container is None
            else {"model_type": container, "text_config": {"model_type": family}}
        )
        (tmp_path / "config.json").write_text(json.dumps(content))
        assert read_configuration(tmp_path).eos_token_ids == ()
        content["eos_token_id"] = 4
        (tmp_path / "config.json").write_text(json.dumps(content))
        assert read_configuration(tmp_path).eos_token_ids == (4,)
        content.setdefault("text_config", {})["eos_token_id"] = [5, 4]
        (tmp_path / "config.json").write_text(json.dumps(content))
        assert container is None or read_configuration(tmp_path).eos_token_ids == (4, 5)


def test_without_an_end_in_its_files_the_tokenizer_s_is_all(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, vocab_size=700)
    content = json.loads((folder / "config.json").read_text())
    del content["eos_token_id"]
    (folder / "config.json").write_text(json.dumps(content))
    (folder / "generation_config.json").unlink()
    tokenizer = make_tokenizer()
    tokenizer.eos_token = "<|endoftext|>"  # 0, where transformers' default is 2
    tokenizer.chat_template = None
    assert end_tokens(folder, tokenizer) == (0,)


@pytest.mark.parametrize("unknown", [None, -1, 131, [500, 501]])
def test_a_model_without_an_end_token_is_refused(unknown: object, tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    with pytest.raises(ModelLoadError, match="no end-of-text token is known") as caught:
        end_tokens(folder, None, config=unknown, generation_config=None)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def turns(begin: str, end: str) -> str:
    return "{% for m in messages %}" + begin + "{{ m.content }}" + end + "{% endfor %}"


TURNS = {  # as models write them, and the special token that ends an answer
    "gemma": (turns("<start_of_turn>{{ m.role }}\n", "<end_of_turn>\n"), "<end_of_turn>"),
    "llama 3": (turns("<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n", "<|eot_id|>"), "<|eot_id|>"),
    "glm": (turns("<|{{ m.role }}|>\n", ""), "<|user|>"),
    "mistral": (turns("[INST]", "[/INST]{{ eos_token }}"), "[/INST]"),
    "plain": (turns("", ". "), None),
    "refuses": ("{{ raise_exception('no') }}", None),
    "gpt-oss": (turns("<|channel|>", "<|end|>"), None),
}
NAMES = ("<start_of_turn>", "<end_of_turn>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|user|>",
         "<|assistant|>", "[INST]", "[/INST]", "<|end|>")  # fmt: skip


@pytest.mark.parametrize("model", TURNS)
def test_what_the_template_writes_after_an_answer_ends_it(model: str, tmp_path: Path) -> None:
    template, end = TURNS[model]
    folder = tiny_model("llama", tmp_path, vocab_size=730)
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [*NAMES, *(["<|channel|>"] if model == "gpt-oss" else [])]}
    )
    tokenizer.chat_template = template
    expected = (5, *([] if end is None else [tokenizer.convert_tokens_to_ids(end)]), 2)
    (folder / "generation_config.json").unlink(missing_ok=True)
    assert end_tokens(folder, tokenizer, config=5) == expected
    assert end_tokens(folder, None, config=5, generation_config=[5, 7]) == (5, 7, 2), "what it lists is all"
