"""A model's text files as the core's process is told of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from thothy_ai.engine.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.remote import messages
from thothy_ai.engine.remote.messages import Word
from thothy_ai.engine.remote.model_text import RemoteText

FOLDER = Path("/model")
CONFIGURATION = ['{"model_type": "llama", "rope": {"factor": 1e400}, "many": [1, null]}', None, [5, 2**70]]


def made() -> tuple[RemoteText, list[tuple[str, ...]]]:
    said: list[tuple[str, ...]] = []
    return RemoteText(SimpleNamespace(send=lambda *parts: said.append(parts))), said  # type: ignore[arg-type]


def test_only_a_folder_that_was_made_here_is_told() -> None:
    for named, expected in ((FOLDER, []), (Path("/model.gguf"), [(Word.FOLDER, "/model")])):
        text, said = made()
        assert text.hear(Word.CONFIGURATION, [None, CONFIGURATION])
        found = text.configuration(FOLDER, named)
        assert said == expected
        assert messages.configuration_parts(found)[1:] == (None, (5, 2**70))
        assert found.text.rope == {"factor": float("inf")}


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
