"""Adapters (LoRA; Hu et al., 2021) as an engine names and reports them: low-rank weights beside the base model's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from thothy_ai.engine.api.errors import InvalidRequestError

ADAPTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_RANK = 256
DEFAULT_SLOTS, DEFAULT_RANK = 8, 16  # on the device
NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """An adapter that is loaded. `digest` is of its weights and configuration, and thus the same on every engine.

    An activated adapter (aLoRA; Greenewald et al., 2025) has `invocation_tokens`: tokens of a prompt before their last
    occurrence are computed by the base model, and prompts must contain them.
    """

    name: str
    digest: str  # sha256, in hexadecimal digits
    rank: int  # the largest of its layers
    base: str = ""  # the model that it was trained on, as its configuration names it
    folder: str = ""  # on the engine's machine
    num_bytes: int = 0  # in host memory
    invocation_tokens: tuple[int, ...] = ()


class Adapter(NamedTuple):
    """An adapter as scheduling knows it.

    `number` is its own as long as it is in host memory; `digest` tells its weights from all others.
    """

    number: int
    digest: str
    invocation_tokens: tuple[int, ...] = ()

    def begins(self, prompt: Sequence[int]) -> int:
        """The first token that it computes: of an activated adapter, that of the last invocation.

        InvalidRequestError if there is none: the base model would answer.
        """
        wanted = self.invocation_tokens
        if not wanted:
            return 0
        for start in range(len(prompt) - len(wanted), -1, -1):
            if prompt[start] == wanted[0] and tuple(prompt[start : start + len(wanted)]) == wanted:
                return start
        raise InvalidRequestError(
            f"the prompt does not have the tokens {[*wanted]} that activate this adapter", "adapter"
        )


def check_adapter_name(name: str) -> None:
    """InvalidRequestError for a name that no adapter may have."""
    if ADAPTER_NAME.fullmatch(name) is None:
        raise InvalidRequestError(
            f"{name!r:.120} cannot be an adapter's name: letters, digits, dots, dashes and underscores, 100 at most",
            "adapter",
        )


def adapters_of(given: Iterable[str]) -> dict[str, Path]:
    """Folders by name of adapters given as NAME=FOLDER; InvalidRequestError for what is not, or a name twice."""
    folders: dict[str, Path] = {}
    for each in given:
        name, separator, folder = each.partition("=")
        if not (separator and folder):
            raise InvalidRequestError(f"{each!r:.200} is not an adapter: expected NAME=FOLDER", "adapter")
        check_adapter_name(name)
        if name in folders:
            raise InvalidRequestError(f"two adapters are named {name!r}", "adapter")
        folders[name] = Path(folder)
    return folders
