"""Channels: where a short text is published, and what fits there. The limits are data, in `channels.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Channel = Literal[
    "newsletter", "social post", "video", "podcast", "landing page",
    "x", "linkedin", "push", "subject line", "meta title", "meta description",
]  # fmt: skip
MAX_CHARS = 3_000  # of any channel
LINK_CHARS = 23  # of any link in a post on X
_LINK = re.compile(r"https?://\S+")
_LIGHT = re.compile(r"[\x00-\u10ff\u2000-\u200d\u2010-\u201f\u2032-\u2037]")  # what X counts as one character


@dataclass(frozen=True, slots=True)
class Form:
    """What a channel publishes: what the prompt calls it, its limits, and whether in whole sentences and with emoji."""

    description: str
    max_chars: int
    max_sentences: int
    whole_sentences: bool = True
    weighted: bool = False
    emoji: bool = False

    def length(self, text: str) -> int:
        """How many characters a text has, as the channel counts them."""
        if not self.weighted:
            return len(text)
        plain, links = _LINK.subn("", text)
        return LINK_CHARS * links + 2 * len(plain) - len(_LIGHT.findall(plain))


FORMS: Final[Mapping[str, Form]] = {
    name: Form(**form)
    for name, form in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}
