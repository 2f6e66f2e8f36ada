"""`Piece`: an artifact as readers get it. A kind makes one of each artifact; all formats are written from it.

Texts are plain and shown unchanged, except in `Marked`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_QUOTATION_MARKS = re.compile(r"[\"“”„«»「」]")


@dataclass(frozen=True, slots=True)
class Quote:
    """A span of a source that supports a text, and the known details of that source."""

    text: str
    title: str = ""
    byline: str = ""  # author and date
    url: str = ""

    def __str__(self) -> str:
        """The span in quotation marks, unless it has its own."""
        return self.text if _QUOTATION_MARKS.search(self.text) else f"“{self.text}”"


@dataclass(frozen=True, slots=True)
class Cited:
    """A text, such as a sentence or a point of a list, and its evidence."""

    text: str
    quotes: tuple[Quote, ...] = ()


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading below the title. `level` 1 is for sections, 2 for their parts."""

    text: str
    level: int = 1


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Texts that run on; blank lines inside them begin new paragraphs."""

    runs: tuple[Cited, ...]


@dataclass(frozen=True, slots=True)
class Points:
    """A list, such as key points."""

    items: tuple[Cited, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of several texts. A note for the editor says what it plays on."""

    text: str
    angle: str = ""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Texts of which one is published: a list in documents, one row each in tables."""

    items: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class Marked:
    """Markdown, such as a translation of it."""

    text: str


Block = Heading | Paragraph | Points | Alternatives | Marked

_TITLE = re.compile(r" {0,3}#[ \t]+(.*?)[ \t]*#*[ \t]*(?:\n|$)")
_EMPHASIS = re.compile(r"(\*\*|__|\*|`)(?=\S)(.+?)(?<=\S)\1")


@dataclass(frozen=True, slots=True)
class Piece:
    """A publishable document. `label` is the heading of a piece without a title, such as "Hooks: newsletter"."""

    title: str = ""
    standfirst: str = ""
    blocks: tuple[Block, ...] = ()
    tags: tuple[str, ...] = ()
    label: str = ""

    @classmethod
    def of_markdown(cls, text: str) -> Piece:
        """A document whose first line, if it is a heading of the first level, is its title."""
        found = _TITLE.match(text)
        rest = (text[found.end() :] if found else text).strip()
        title = _EMPHASIS.sub(r"\2", found[1]) if found else ""
        return cls(title=title, blocks=(Marked(rest),) if rest else ())

    @property
    def quotes(self) -> tuple[Quote, ...]:
        """All evidence, each span once, in the order in which it is cited: note 1, 2 and so on."""
        found: dict[Quote, None] = {}
        for block in self.blocks:
            cited = block.runs if isinstance(block, Paragraph) else block.items if isinstance(block, Points) else ()
            found |= dict.fromkeys(quote for text in cited for quote in text.quotes)
        return tuple(found)

    def options(self) -> tuple[tuple[str, Piece], ...]:
        """One piece per alternative, with the note on what it plays on; without alternatives, the piece itself."""
        choices = [choice for block in self.blocks if isinstance(block, Alternatives) for choice in block.items]
        others = tuple(block for block in self.blocks if not isinstance(block, Alternatives))
        apart = ((each.angle, replace(self, blocks=(*others, Alternatives((each,))))) for each in choices)
        return tuple(apart) or (("", self),)
