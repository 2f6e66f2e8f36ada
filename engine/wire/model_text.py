"""A model's configuration and tokenizer in the core's process.

The frontend reads them and sends them as messages: transformers takes two seconds to import, during which the core
imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.checkpoint.configuration import FolderConfiguration
from thothy_ai.engine.grammar.tokens import CoreTokenizer, JsonTokens
from thothy_ai.engine.wire.channel import Channel
from thothy_ai.engine.wire.core_messages import (
    ConfigurationRead,
    FolderFound,
    FromCore,
    JsonTokensRead,
    TextRead,
    ToCore,
    TokenizerRead,
)

T = TypeVar("T")


class RemoteText:
    """Implements `ModelText` with messages from the frontend."""

    def __init__(self, channel: Channel[FromCore, ToCore]) -> None:
        self._channel = channel
        self._configuration: Future[FolderConfiguration] = Future()
        self._tokenizer: Future[CoreTokenizer | None] = Future()
        self._json_tokens: Future[JsonTokens | None] = Future()

    def configuration(self, folder: Path, _named: Path, /) -> FolderConfiguration:
        self._channel.send(FolderFound(folder))
        return self._configuration.result()

    def tokenizer(self, _folder: Path, /) -> CoreTokenizer | None:
        return self._tokenizer.result()

    def take(self, message: TextRead) -> None:
        """Deliver a message from the frontend; called on the thread that receives messages."""
        match message:
            case ConfigurationRead():
                _settle(self._configuration, message.configuration)
            case TokenizerRead():
                _settle(self._tokenizer, lambda: message.tokenizer(self._json_tokens))
            case JsonTokensRead():
                _settle(self._json_tokens, message.tokens)


def _settle(asked: Future[T], read: Callable[[], T]) -> None:
    try:
        asked.set_result(read())
    except EngineError as error:
        asked.set_exception(error)
