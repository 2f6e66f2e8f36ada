"""A model's text files as the core's process is told of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.wire.core_messages import Word
from thothy_ai.engine.wire.model_text import RemoteText

FOLDER = Path("/model")
CONFIGURATION = ['[{"model_type": "llama", "rope": {"factor": 1e400}, "many": [1, null]}, [5]]', None]


def made() -> tuple[RemoteText, list[tuple[str, ...]]]:
    said: list[tuple[str, ...]] = []
    return RemoteText(SimpleNamespace(send=lambda *parts: said.append(parts))), said  # type: ignore[arg-type]


def test_the_frontend_is_told_where_the_files_are() -> None:
    text, said = made()
    assert text.hear(Word.CONFIGURATION, [None, CONFIGURATION])
    found = text.configuration(FOLDER, Path("/model.gguf"))
    assert said == [(Word.FOLDER, "/model")]
    assert (found.text.rope, found.container, found.eos_token_ids) == ({"factor": float("inf")}, None, (5,))


def test_errors_are_raised_where_the_files_are_asked_for() -> None:
    text, _ = made()
    assert text.hear(Word.CONFIGURATION, [["unsupported_model", "no such architecture"], None])
    assert text.hear(Word.TOKENIZER, [["model_load", "it can't be read"], None])
    with pytest.raises(UnsupportedModelError, match="no such architecture"):
        text.configuration(FOLDER, FOLDER)
    with pytest.raises(ModelLoadError, match="it can't be read"):
        text.tokenizer(FOLDER)


def test_a_folder_without_a_tokenizer() -> None:
    text, _ = made()
    assert text.hear(Word.TOKENIZER, [None, None])
    assert text.tokenizer(FOLDER) is None


def test_other_messages_are_left_to_others() -> None:
    text, _ = made()
    assert not text.hear(Word.STOP, [])
