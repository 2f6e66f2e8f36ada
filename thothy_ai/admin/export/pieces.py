"""Makes the piece from a stored artifact, as its kind publishes it, and names for the piece."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from thothy_ai.jobs.publishing.piece import Marked, Piece
from thothy_ai.jobs.publishing.plain import beginning, plain, shortened

if TYPE_CHECKING:
    from thothy_ai.jobs import Artifact

MAX_TITLE_CHARS = 70  # of a title that is made from a piece's first words
MAX_SLUG_CHARS = 50
_NOT_ASCII_WORD, _NOT_WORD = re.compile(r"[^a-z0-9]+"), re.compile(r"[\W_]+")


def piece_of(artifact: Mapping[str, Any]) -> Piece:
    """The part of an artifact that readers see; the raw output if that did not parse."""
    from pydantic import ValidationError  # noqa: PLC0415  lists of jobs don't need it

    from thothy_ai.jobs import registry  # noqa: PLC0415  lists of jobs don't need it
    from thothy_ai.jobs.publishing.fields import piece_of_fields  # noqa: PLC0415

    kind, body = artifact["kind"], artifact["body"]
    if body is None:
        return Piece(blocks=(Marked(str(artifact["text"]).strip()),))
    if kind not in registry.names():
        return piece_of_fields(body)
    found = registry.find(kind).artifact
    try:
        parsed: Artifact = found.model_validate(body, extra="ignore")
        return parsed.piece(artifact)
    except ValidationError:  # from another version of the kind; the database does not keep the order of fields
        known = list(found.model_fields)
        names = sorted(body, key=lambda name: known.index(name) if name in known else len(known))
        return piece_of_fields({name: body[name] for name in names})


def sources_of(artifact: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The known data about the sources in the artifact's brief."""
    known = ("title", "url", "author", "date")
    sources = (artifact.get("brief") or {}).get("sources") or ()
    return [{name: source[name] for name in known if source.get(name)} for source in sources]


def canonical_url(artifact: Mapping[str, Any]) -> str | None:
    """The address of the source, if the artifact has exactly one source."""
    sources = sources_of(artifact)
    url: str | None = sources[0].get("url") if len(sources) == 1 else None
    return url


def name_of(piece: Piece) -> str:
    """The title of a piece or, without one, its type or first words."""
    return piece.title or piece.label or shortened(beginning(piece, heading=True), MAX_TITLE_CHARS)


def text_of(artifact: Mapping[str, Any]) -> str:
    """The title, standfirst and text, for a terminal."""
    piece = piece_of(artifact)
    return "\n\n".join(part for part in (piece.title, piece.standfirst, plain(piece)) if part)


def ascii_slug(piece: Piece) -> str:
    """The first words of the title or text, without accents; empty if they have no ASCII letters."""
    text = piece.title or piece.standfirst or beginning(piece)
    folded = unicodedata.normalize("NFKD", text[: 4 * MAX_SLUG_CHARS]).encode("ascii", "ignore").decode().lower()
    return _cut(_NOT_ASCII_WORD.sub("-", folded).strip("-"))


def slug(piece: Piece) -> str:
    """A slug in ASCII or, if few letters of the text are ASCII, in its own letters."""
    text = piece.title or piece.standfirst or beginning(piece)
    plain_slug = ascii_slug(piece)
    letters = sum(map(str.isalpha, text[:MAX_SLUG_CHARS]))
    if 2 * sum(map(str.isalpha, plain_slug)) >= letters:
        return plain_slug
    return _cut(_NOT_WORD.sub("-", unicodedata.normalize("NFC", text).lower()).strip("-"))


def _cut(words: str) -> str:
    if len(words) <= MAX_SLUG_CHARS:
        return words
    return words[: MAX_SLUG_CHARS + 1].rpartition("-")[0] or words[:MAX_SLUG_CHARS]
