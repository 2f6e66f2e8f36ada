"""Artifacts as HTML pages, one `<article>` each, without scripts or styles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from thothy_ai.admin.export.pieces import canonical_url, name_of, piece_of
from thothy_ai.jobs.publishing.html import html
from thothy_ai.jobs.publishing.piece import Piece
from thothy_ai.jobs.publishing.plain import description

# ISO 639 codes of languages written from right to left.
_RIGHT_TO_LEFT = frozenset({"ar", "dv", "fa", "he", "ku", "ps", "sd", "ug", "ur", "yi"})
_END = "</body>\n</html>\n"


def page(artifact: Mapping[str, Any]) -> str:
    """The page of one artifact."""
    piece = piece_of(artifact)
    article = f"<article{_attributes(artifact)}>\n{html(piece)}</article>\n"
    beginning = _beginning(name_of(piece), artifact["locale"], piece, canonical_url(artifact))
    return beginning + article + _END


def page_of_source(artifacts: Sequence[Mapping[str, Any]]) -> str:
    """The page of all artifacts of one source, named after the first artifact that has a title."""
    pieces = [piece_of(artifact) for artifact in artifacts]
    title = name_of(next((piece for piece in pieces if piece.title), pieces[0]))
    return _beginning(title, artifacts[0]["locale"]) + "".join(_articles(artifacts)) + _END


def stream_page(artifacts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One page of any number of artifacts, piece by piece."""
    yield _beginning("Artifacts", "en")
    yield "<h1>Artifacts</h1>\n"
    yield from _articles(artifacts)
    yield _END


def _articles(artifacts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for number, artifact in enumerate(artifacts, 1):
        inside = html(piece_of(artifact), level=2, name=str(number))
        yield f"<article{_language(artifact['locale'])}{_attributes(artifact)}>\n{inside}</article>\n"


def _beginning(title: str, locale: str, piece: Piece | None = None, canonical: str | None = None) -> str:
    about = {"description": description(piece), "keywords": ", ".join(piece.tags)} if piece else {}
    return "".join(
        [
            f'<!doctype html>\n<html{_language(locale)}>\n<head>\n<meta charset="utf-8">\n',
            f"<title>{escape(title, quote=False)}</title>\n",
            *(f'<meta name="{name}" content="{escape(text)}">\n' for name, text in about.items() if text),
            f'<link rel="canonical" href="{escape(canonical)}">\n' if canonical else "",
            "</head>\n<body>\n",
        ]
    )


def _language(locale: str) -> str:
    direction = ' dir="rtl"' if locale.partition("-")[0].lower() in _RIGHT_TO_LEFT else ""
    return f' lang="{escape(locale)}"{direction}'


def _attributes(artifact: Mapping[str, Any]) -> str:
    return f' data-kind="{escape(artifact["kind"])}" data-job-id="{escape(str(artifact["job_id"]))}"'
