"""The bundled source texts, written for this project. The organisations, people and figures in them are invented.

A file consists of a title line, an empty line and the body.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Source:
    """One source text. `slug` is the file name without its suffix; `text` starts with the title line."""

    slug: str
    title: str
    text: str

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The paragraphs of the body, without the title line."""
        return tuple(self.text.split("\n\n")[1:])


def load_sources() -> tuple[Source, ...]:
    """Load all bundled sources, sorted by slug."""
    folder = files("thothy_ai.demo") / "sources"
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    texts = {entry.name: entry.read_text("utf-8") for entry in entries if entry.name.endswith(".txt")}
    return tuple(
        Source(slug=name.removesuffix(".txt"), title=text.partition("\n")[0], text=text.strip())
        for name, text in texts.items()
    )
