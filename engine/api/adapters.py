"""Adapters (LoRA; Hu et al., 2021) as an engine names and reports them: low-rank weights added to the base model's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from thothy_ai.engine.api.errors import InvalidRequestError

ADAPTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_RANK = 256
DEFAULT_SLOTS, DEFAULT_RANK = 8, 16  # adapters on the device, and their largest rank
NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """A loaded adapter. `digest` covers its weights and configuration, so it is the same on every engine.

    An activated adapter (aLoRA; Greenewald et al., 2025) has `invocation_tokens`, which every prompt must contain. The
    base model computes the tokens of the prompt before their last occurrence.
    """

    name: str
    digest: str  # sha256, in hexadecimal digits
    rank: int  # the largest rank of any layer
    base: str = ""  # the model it was trained on, as named in its configuration
    folder: str = ""  # on the engine's machine
    num_bytes: int = 0  # in host memory
    invocation_tokens: tuple[int, ...] = ()


class Adapter(NamedTuple):
    """An adapter as scheduling knows it.

    `number` is unique while the adapter is in host memory; `digest` identifies its weights.
    """

    number: int
    digest: str
    invocation_tokens: tuple[int, ...] = ()

    def begins(self, prompt: Sequence[int]) -> int:
        """Position of the first token that the adapter computes; an activated one starts at its last invocation.

        Raises InvalidRequestError if the prompt has no invocation: the base model alone would answer.
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
    """Raise InvalidRequestError unless an adapter can have this name."""
    if ADAPTER_NAME.fullmatch(name) is None:
        raise InvalidRequestError(
            f"{name!r:.120} cannot be an adapter's name: letters, digits, dots, dashes and underscores, 100 at most",
            "adapter",
        )


def adapters_of(given: Iterable[str]) -> dict[str, Path]:
    """Parse adapters given as NAME=FOLDER; InvalidRequestError for any other form, or for a repeated name."""
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
