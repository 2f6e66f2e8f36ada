"""The bundled source texts, written for this project; organisations, people and figures in them are invented.

A file is a title, an empty line, and the body.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Source:
    """One source text. `text` has the title as its first line."""

    slug: str
    title: str
    text: str

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """Paragraphs of the body, without the title."""
        return tuple(self.text.split("\n\n")[1:])


def load_sources() -> tuple[Source, ...]:
    """All bundled sources, by slug."""
    folder = files("thothy_ai.demo") / "sources"
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    return tuple(_source(entry.name, entry.read_text("utf-8")) for entry in entries if entry.name.endswith(".txt"))


def _source(name: str, text: str) -> Source:
    return Source(slug=name.removesuffix(".txt"), title=text.partition("\n")[0], text=text.strip())
