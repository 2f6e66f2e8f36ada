"""Artifacts as text to publish: the title, and the body as Markdown, whatever the kind.

A kind may define how its artifact is published (`Artifact.markdown`). Otherwise a field that is named like a title
becomes the heading, texts become paragraphs, lists become bullets, and other fields are named.

Nothing in a document runs or loads anything, whoever wrote it: titles and front matter are plain text, and a body with
such markup keeps it as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thothy_ai.cli.views.tables import json_text

TITLES = ("title", "headline", "heading", "subject", "name")
# YAML reads the first three as its own line breaks, and a reader that knows no front matter the others as markup.
_ESCAPED = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\u2028\u2029\ufeff<[]`"}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MARK = re.compile(r"[\\`*_\[\]~]|(?<=\])\(|(?<=\s)#+$")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_LINE_END = re.compile(r"\r\n?")


def title_of(body: Mapping[str, Any] | None) -> str | None:
    """The title of an artifact, if its kind has one."""
    found = (body.get(name) for name in TITLES) if body else ()
    return next((" ".join(text.split()) for text in found if isinstance(text, str) and text.strip()), None)


def body_of(artifact: Mapping[str, Any]) -> str:
    """The artifact's text without its title; the raw output if it did not parse."""
    from thothy_ai.jobs import registry

    kind, body = artifact["kind"], artifact["body"]
    if body is None:
        return str(artifact["text"]).strip()
    if (published := _published(kind, body)) is not None:
        return published.strip()
    # The artifact class keeps the order of the fields, which the database does not.
    known = list(registry.find(kind).artifact.model_fields) if kind in registry.names() else []
    names = sorted(body, key=lambda name: known.index(name) if name in known else len(known))
    title = next((name for name in TITLES if body.get(name)), None)
    rest = {name: body[name] for name in names if name != title or not isinstance(body[name], str)}
    return "\n\n".join(_blocks(rest, 2)).strip()


def text_of(artifact: Mapping[str, Any]) -> str:
    """The title and the text, for a terminal."""
    title = title_of(artifact["body"])
    return "\n\n".join(part for part in (title, body_of(artifact)) if part)


def document(artifact: Mapping[str, Any]) -> str:
    """The artifact as Markdown, with its identifying fields as YAML front matter."""
    about = {name: value for name, value in artifact.items() if name not in {"body", "text"} and value is not None}
    matter = "".join(f"{name}: {_yaml(value)}\n" for name, value in about.items())
    title = heading(artifact) if title_of(artifact["body"]) else ""
    return f"---\n{matter}---\n\n" + _harmless(f"{title}{body_of(artifact)}\n")


def documents(artifacts: Sequence[Mapping[str, Any]]) -> str:
    """All artifacts of one source in one Markdown document, with the source and the jobs as YAML front matter."""
    jobs = [str(artifact["job_id"]) for artifact in artifacts]
    matter = f"source_key: {_yaml(artifacts[0]['source_key'])}\njobs: {_yaml(jobs)}\n"
    return f"---\n{matter}---\n\n" + _harmless("\n".join(f"{heading(each)}{body_of(each)}\n" for each in artifacts))


def heading(artifact: Mapping[str, Any]) -> str:
    """The title or, without one, the name of the kind, as a heading and a blank line."""
    return f"# {_literal(title_of(artifact['body']) or _label(artifact['kind']))}\n\n"


def _published(kind: str, body: Mapping[str, Any]) -> str | None:
    """The Markdown of the artifact's class; None if it has none, or the body is from another version of it."""
    from pydantic import ValidationError

    from thothy_ai.jobs import registry

    if kind not in registry.names():
        return None
    try:
        found: str | None = registry.find(kind).artifact.model_validate(body, extra="ignore").markdown
    except ValidationError:
        return None
    return found


def _yaml(value: object) -> str:
    """JSON is YAML, except for a few line breaks."""
    return _STRING.sub(lambda found: found[0].translate(_ESCAPED), json_text(value))


def _literal(line: str) -> str:
    """A line of plain text as Markdown that shows it as it is."""
    return _MARK.sub(r"\\\g<0>", _ENTITY.sub("&amp;", line).replace("<", "&lt;"))


def _harmless(text: str) -> str:
    """The document as it is; with tags and links as text, except in fences, if one of them runs or loads something."""
    from thothy_ai.jobs.checks import unsafe_markup

    if unsafe_markup(text) is None:
        return text
    from markdown_it import MarkdownIt

    text = _LINE_END.sub("\n", text)
    fences = (token.map for token in MarkdownIt("commonmark", {"html": False}).parse(text) if token.type == "fence")
    fenced = {line for first, end in filter(None, fences) for line in range(first, end)}
    # Entities stand for characters of the text only. A backslash might meet another that is before it.
    return "\n".join(
        line if number in fenced else line.replace("<", "&lt;").replace("](", "]&#40;").replace("]:", "]&#58;")
        for number, line in enumerate(text.split("\n"))
    )


def _blocks(fields: Mapping[str, Any], level: int) -> Iterator[str]:
    several = sum(isinstance(value, list) for value in fields.values()) > 1
    for name, value in fields.items():
        if value in (None, "", [], {}):
            continue
        match value:
            case str():
                yield value.strip()
            case dict():
                yield f"{'#' * level} {_label(name)}"
                yield from _blocks(value, min(level + 1, 6))
            case list():
                if several:
                    yield f"{'#' * level} {_label(name)}"
                items = (each.values() if isinstance(each, dict) else [each] for each in value)
                yield "\n".join(f"- {': '.join(map(_one_line, texts))}" for texts in items)
            case _:
                yield f"{_label(name)}: {json_text(value)}"


def _one_line(value: object) -> str:
    return " ".join((value if isinstance(value, str) else json_text(value)).split())


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()
