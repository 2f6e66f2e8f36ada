"""A model's configuration and tokenizer in the core's process.

The frontend reads them, and sends them as messages: transformers takes two seconds to import, and the core imports
torch meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from thothy_ai.engine.api.errors import from_code
from thothy_ai.engine.checkpoint.configuration import FolderConfiguration
from thothy_ai.engine.grammar.core_tokenizer import CoreTokenizer
from thothy_ai.engine.grammar.tokens import JsonTokens
from thothy_ai.engine.wire import core_messages as messages
from thothy_ai.engine.wire.channel import Channel
from thothy_ai.engine.wire.core_messages import Word

T = TypeVar("T")


class RemoteText:
    """Implements `ModelText`. `hear` is called with messages, on the thread that receives them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._configuration: Future[FolderConfiguration] = Future()
        self._tokenizer: Future[CoreTokenizer | None] = Future()
        self._json_tokens: Future[JsonTokens | None] = Future()

    def configuration(self, folder: Path, _named: Path, /) -> FolderConfiguration:
        """As `ModelText`."""
        self._channel.send(Word.FOLDER, str(folder))
        return self._configuration.result()

    def tokenizer(self, _folder: Path, /) -> CoreTokenizer | None:
        """As `ModelText`."""
        return self._tokenizer.result()

    def hear(self, word: str, parts: Sequence[Any]) -> bool:
        """Take a message: an error or None, and then what was read. Returns whether it is one of these."""
        match word:
            case Word.CONFIGURATION:
                _settle(self._configuration, parts, messages.read_configuration)
            case Word.TOKENIZER:
                _settle(self._tokenizer, parts, lambda read: messages.read_tokenizer(read, self._json_tokens))
            case Word.JSON_TOKENS:
                _settle(self._json_tokens, parts, messages.read_json_tokens)
            case _:
                return False
        return True


def _settle(asked: Future[T], message: Sequence[Any], read: Callable[[Any], T]) -> None:
    error, parts = message
    if error is None:
        asked.set_result(read(parts))
    else:
        asked.set_exception(from_code(*error))
