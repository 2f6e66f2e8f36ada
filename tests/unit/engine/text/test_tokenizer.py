"""The files that a tokenizer may come in: read as they are meant, or refused in one line; and where its template is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from benchmarks.tekken import convert
from tests.support.small_tokenizer import small_tekken
from tests.support.tiny_tokenizer import CHAT_TEMPLATE, TEXTS, make_tokenizer
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.text.tokenizer import load_tokenizer
from thothy_ai.engine.text.tools import fast_tokenizer, text_tools

SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "12 people swim."}]
ODD_TEXTS = (*TEXTS, "years 1234 of\n\n  swimming night", "日本 öö", "it's 7:30!")


def write_tekken(folder: Path, special: list[str] = SPECIAL, pattern: str | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    content = small_tekken()
    content["special_tokens"] = [
        {"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(special)
    ]
    if pattern:
        content["config"]["pattern"] = pattern
    (folder / "tekken.json").write_text(json.dumps(content))
    (folder / "config.json").write_text('{"model_type": "mistral", "transformers_version": "4.50.0"}')
    return folder


def loaded(folder: Path) -> PreTrainedTokenizerFast:
    tokenizer = fast_tokenizer(load_tokenizer(folder), folder.name)
    text_tools(tokenizer, folder.name)
    return tokenizer


def tokens(tokenizer: Any, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def test_tekken_alone(tmp_path: Path) -> None:
    tokenizer, expected = loaded(write_tekken(tmp_path / "t")), convert(small_tekken())
    assert [tokens(tokenizer, text) for text in ODD_TEXTS] == [tokens(expected, text) for text in ODD_TEXTS]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    text = tokenizer.apply_chat_template(TURNS, tokenize=False)
    assert text == "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]12 people swim.[/INST]"


def test_tekken_of_a_version_without_system_messages(tmp_path: Path) -> None:
    tokenizer = loaded(write_tekken(tmp_path / "t", SPECIAL[:5]))
    assert tokenizer.apply_chat_template(TURNS[1:], tokenize=False) == "<s>[INST]12 people swim.[/INST]"
    with pytest.raises(Exception, match="unknown role system"):
        tokenizer.apply_chat_template(TURNS, tokenize=False)


def test_tekken_with_a_template_of_its_own(tmp_path: Path) -> None:
    folder = write_tekken(tmp_path / "t")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert loaded(folder).apply_chat_template(TURNS, tokenize=False) == "Be brief.!"


def test_a_tokenizer_json_beside_tekken_cuts_as_tekken_does(tmp_path: Path) -> None:
    """One token per letter: unlike the tokenizer.json, which was saved with another pattern."""
    folder = write_tekken(tmp_path / "t", pattern=r"\p{L}|[^\p{L}]+")
    convert(small_tekken()).save_pretrained(folder)
    assert len(tokens(loaded(folder), " people")) == len(" people")
    (folder / "tekken.json").unlink()
    assert len(tokens(loaded(folder), " people")) == 1


def test_vocabulary_and_merges(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.model.save(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}'
    )
    read = loaded(tmp_path)
    assert [tokens(read, text) for text in ODD_TEXTS] == [tokens(tokenizer, text) for text in ODD_TEXTS]


@pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model", "tokenization_chatglm.py", "qwen.tiktoken"])
def test_what_only_slow_tokenizers_read_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("raise SystemExit")
    (tmp_path / "tokenizer_config.json").write_text(
        '{"auto_map": {"AutoTokenizer": ["tokenization_chatglm.ChatGLM4Tokenizer", null]}}'
    )
    with pytest.raises(UnsupportedModelError, match=f"exists only as {name}") as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"config": {}}', '{"config": {"pattern": "("}, "vocab": []}'])
def test_a_broken_tekken(content: str, tmp_path: Path) -> None:
    (tmp_path / "tekken.json").write_text(content)
    with pytest.raises(ModelLoadError, match="tokenizer can't be read") as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def test_no_tokenizer(tmp_path: Path) -> None:
    assert load_tokenizer(tmp_path) is None


def bare(folder: Path) -> Path:
    """A tokenizer without a template."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(folder)
    return folder


def in_the_configuration(folder: Path, template: object) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))


NAMED = [{"name": "default", "template": CHAT_TEMPLATE}, {"name": "tool_use", "template": "tools"}]
PLACES = {
    "jinja": lambda folder: (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE),
    "configuration": lambda folder: in_the_configuration(folder, CHAT_TEMPLATE),
    "named templates": lambda folder: in_the_configuration(folder, NAMED),
    "processor's": lambda folder: (folder / "chat_template.json").write_text(
        json.dumps({"chat_template": CHAT_TEMPLATE})
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_wherever_the_template_is(place: str, tmp_path: Path) -> None:
    PLACES[place](bare(tmp_path))
    expected = make_tokenizer().apply_chat_template(TURNS, tokenize=False)
    assert loaded(tmp_path).apply_chat_template(TURNS, tokenize=False) == expected


def test_a_tokenizer_s_own_template_comes_first(tmp_path: Path) -> None:
    PLACES["jinja"](bare(tmp_path))
    (tmp_path / "chat_template.json").write_text('{"chat_template": "other"}')
    assert loaded(tmp_path).chat_template == CHAT_TEMPLATE


def test_a_tokenizer_json_is_taken_as_it_stands(tmp_path: Path) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "tokenizer.model").write_text("not read")
    assert loaded(tmp_path).backend_tokenizer.to_str() == Tokenizer.from_file(str(tmp_path / "tokenizer.json")).to_str()
