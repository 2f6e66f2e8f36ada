"""The piece of an artifact whose kind says nothing about it: made from its fields, by their names and types.

A field that is named like a title is the title, texts are paragraphs, lists are lists, and other values are named. An
item's evidence becomes a footnote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from thothy_ai.jobs.publishing.piece import Block, Cited, Heading, Marked, Paragraph, Piece, Points, Quote

_TITLES = ("title", "headline", "heading", "subject", "name")
_STANDFIRSTS = ("standfirst", "summary", "lead", "subtitle", "deck")
_TAGS = ("tags", "keywords", "hashtags")
_EVIDENCE = ("quote", "quotes", "evidence", "citation", "citations")


def piece_of_fields(values: Mapping[str, Any]) -> Piece:
    """The piece of these JSON values, in their order."""
    rest = dict(values)
    title = _taken(rest, _TITLES)
    standfirst = _taken(rest, _STANDFIRSTS) if len(rest) > 1 else ""
    named = next((name for name in _TAGS if _texts(rest.get(name))), "")
    tags = _texts(rest.pop(named, None))
    return Piece(title=title, standfirst=standfirst, blocks=tuple(_blocks(rest, 1)), tags=tags)


def _taken(values: dict[str, Any], names: tuple[str, ...]) -> str:
    """The first field of these names that is one line of text, which is taken out of the values."""
    found = (name for name in names if isinstance(values.get(name), str) and values[name].strip())
    return _line(values.pop(name)) if (name := next(found, "")) else ""


def _blocks(values: Mapping[str, Any], level: int) -> Iterator[Block]:
    given = {name: value for name, value in values.items() if value not in (None, "", [], {})}
    several = sum(isinstance(value, list) for value in given.values()) > 1
    for name, value in given.items():
        match value:
            case str():
                yield Marked(value.strip())
            case dict():
                yield Heading(_label(name), level)
                yield from _blocks(value, level + 1)
            case list():
                if several:
                    yield Heading(_label(name), level)
                yield Points(tuple(map(_item, value)))
            case _:
                yield Paragraph((Cited(f"{_label(name)}: {json.dumps(value)}"),))


def _item(value: object) -> Cited:
    """An item of a list: its texts, and its evidence apart."""
    if not isinstance(value, dict):
        return Cited(_line(value))
    evidence = next((name for name in _EVIDENCE if name in value and len(value) > 1), "")
    spans = value.get(evidence) if isinstance(value.get(evidence), list) else [value.get(evidence)]
    quotes = tuple(Quote(_line(span)) for span in spans or () if span)
    return Cited(" – ".join(_line(each) for name, each in value.items() if name != evidence and each), quotes)


def _texts(value: object) -> tuple[str, ...]:
    """The texts of a list that has nothing else."""
    return tuple(map(_line, value)) if isinstance(value, list) and all(isinstance(each, str) for each in value) else ()


def _line(value: object) -> str:
    return " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()
