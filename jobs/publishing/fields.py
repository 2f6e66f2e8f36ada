"""The default piece of an artifact, made from its fields by their names and types.

A field with a title-like name becomes the title, texts become paragraphs, and lists stay lists; single words and other
values are shown with the field's name. An item's evidence becomes a footnote; items with titles, or several paragraphs,
become sections.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thothy_ai.jobs.publishing.piece import Block, Cited, Heading, Marked, Paragraph, Piece, Points, Quote

MAX_PHRASE_WORDS = 8
_HEADINGS = ("title", "headline", "heading")
_TITLES = (*_HEADINGS, "subject", "name")
_STANDFIRSTS = ("standfirst", "summary", "lead", "subtitle", "deck")
_TAGS = ("tags", "keywords", "hashtags")
_EVIDENCE = ("quote", "quotes", "evidence", "citation", "citations")
_PROSE = ("text", "body", "content", "markdown", "paragraph", "answer")
_SENTENCE_ENDS = frozenset('.!?…:;。！？؟।"”»)')
_BLANK_LINE = re.compile(r"\n[ \t]*\n")


def piece_of_fields(values: Mapping[str, Any]) -> Piece:
    """The piece of these JSON values, in their order."""
    rest = dict(values)
    title = _taken(rest, _TITLES)
    standfirst = _taken(rest, _STANDFIRSTS) if len(rest) > 1 else ""
    named = next((name for name in _TAGS if _texts(rest.get(name))), "")
    tags = _texts(rest.pop(named, None))
    return Piece(title=title, standfirst=standfirst, blocks=tuple(_blocks(rest, 1)), tags=tags)


def _taken(values: dict[str, Any], names: tuple[str, ...]) -> str:
    """Remove and return the first field with one of these names that is a single paragraph of text."""
    found = (
        name for name in names if isinstance(values.get(name), str) and not _BLANK_LINE.search(values[name].strip())
    )
    return _line(values.pop(name)) if (name := next(found, "")) else ""


def _blocks(values: Mapping[str, Any], level: int) -> Iterator[Block]:
    """The fields in order. After a section, each field has a heading, so that it does not read as part of
    that section.
    """
    given = {name: value for name, value in values.items() if _line(value)}
    headed = sum(isinstance(value, list) for value in given.values()) > 1
    for name, value in given.items():
        sections = isinstance(value, list) and any(map(_is_section, value))
        if sections and len(given) == 1:
            yield from _sections(value, level)
            break
        headed = headed or sections or isinstance(value, dict)
        if headed and isinstance(value, dict | list | str):
            yield Heading(_label(name), level)
        if isinstance(value, dict):
            yield from _blocks(value, level + 1)
        elif sections:
            yield from _sections(value, level + 1)
        elif isinstance(value, list):
            yield Points(tuple(_item(each) for each in value if _line(each)))
        elif isinstance(value, str) and (headed or len(given) == 1 or _is_prose(name, value)):
            yield Marked(value.strip())
        else:
            yield Paragraph((Cited(f"{_label(name)}: {_line(value)}"),))


def _sections(items: Sequence[Any], level: int) -> Iterator[Block]:
    """Each item below its title, or its number."""
    for number, item in enumerate(items, start=1):
        rest = dict(item) if isinstance(item, Mapping) else {"text": item}
        yield Heading(_taken(rest, _TITLES) or str(number), level)
        yield from _blocks(rest, level + 1)


def _is_section(item: object) -> bool:
    """Whether an item is too much for a line of a list."""
    if not isinstance(item, Mapping):
        return isinstance(item, str) and bool(_BLANK_LINE.search(item.strip()))
    values = [value for name, value in item.items() if name not in _EVIDENCE]
    parts = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return any(isinstance(each, dict | list) or _is_section(each) for each in parts) or (
        any(name in item for name in _HEADINGS) and len(item) > 1
    )


def _is_prose(name: str, text: str) -> bool:
    """Whether a text is clear on its own; a word such as "high" needs the name of its field."""
    long = len(text.split()) > MAX_PHRASE_WORDS or "\n" in text.strip()
    return long or name in _PROSE or text.rstrip()[-1:] in _SENTENCE_ENDS


def _item(value: object) -> Cited:
    """An item of a list: its texts, and separately its evidence. If there are more than two texts, all but the first
    are named.
    """
    if not isinstance(value, dict):
        return Cited(_line(value))
    evidence = next((name for name in _EVIDENCE if name in value and len(value) > 1), "")
    spans = value.get(evidence) if isinstance(value.get(evidence), list) else [value.get(evidence)]
    quotes = tuple(Quote(_line(span)) for span in spans or () if _line(span))
    texts = {name: text for name, each in value.items() if name != evidence and (text := _line(each))}
    first, *others = texts or [""]
    named = [texts[name] if len(texts) == 2 else f"{_label(name).lower()}: {texts[name]}" for name in others]
    return Cited(" – ".join((texts.get(first, ""), *named)), quotes)


def _texts(value: object) -> tuple[str, ...]:
    """The texts of a list of texts only."""
    return tuple(map(_line, value)) if isinstance(value, list) and all(isinstance(each, str) for each in value) else ()


def _line(value: object) -> str:
    """A value on one readable line; empty for an empty value."""
    match value:
        case None:
            return ""
        case str():
            return " ".join(value.split())
        case dict():
            return ", ".join(f"{_label(name).lower()}: {text}" for name, each in value.items() if (text := _line(each)))
        case list() | tuple():
            return ", ".join(filter(None, map(_line, value)))
        case _:
            return json.dumps(value)


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()
