"""A model's text files as the core's process is told of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.wire.core_messages import ConfigurationRead, FolderFound, FromCore, TokenizerRead
from thothy_ai.engine.wire.model_text import RemoteText

FOLDER = Path("/model")
CONFIGURATION = ConfigurationRead('[{"model_type": "llama", "rope": {"factor": 1e400}, "many": [1, null]}, null, [5]]')


def made() -> tuple[RemoteText, list[FromCore]]:
    said: list[FromCore] = []
    return RemoteText(SimpleNamespace(send=said.append)), said  # type: ignore[arg-type]


def test_the_frontend_is_sent_where_the_files_are() -> None:
    text, said = made()
    text.take(CONFIGURATION)
    found = text.configuration(FOLDER, Path("/model.gguf"))
    assert said == [FolderFound(FOLDER)]
    assert (found.text.rope, found.container, found.eos_token_ids) == ({"factor": float("inf")}, None, (5,))


def test_errors_are_raised_where_the_files_are_asked_for() -> None:
    text, _ = made()
    text.take(ConfigurationRead(error=UnsupportedModelError("no such architecture")))
    text.take(TokenizerRead(error=ModelLoadError("it can't be read")))
    with pytest.raises(UnsupportedModelError, match="no such architecture"):
        text.configuration(FOLDER, FOLDER)
    with pytest.raises(ModelLoadError, match="it can't be read"):
        text.tokenizer(FOLDER)


def test_a_folder_without_a_tokenizer() -> None:
    text, _ = made()
    text.take(TokenizerRead())
    assert text.tokenizer(FOLDER) is None
