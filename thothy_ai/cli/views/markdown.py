"""Artifacts as text to publish: the title, and the body as Markdown, whatever the kind.

A kind may say how its artifact is published (`Artifact.markdown`). Of any other, a field that is named like a title
becomes the heading, texts become paragraphs, lists become bullets, and a field is named where its content would not be
clear without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thothy_ai.cli.views.tables import json_text

TITLES = ("title", "headline", "heading", "subject", "name")
_LINE_BREAKS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\u2028\u2029\ufeff"}  # YAML reads them as its own


def title_of(body: Mapping[str, Any] | None) -> str | None:
    """The title of an artifact, if its kind has one."""
    found = (body.get(name) for name in TITLES) if body else ()
    return next((" ".join(text.split()) for text in found if isinstance(text, str) and text.strip()), None)


def body_of(artifact: Mapping[str, Any]) -> str:
    """The artifact's text without its title; for an output that did not parse, the output."""
    body = artifact["body"]
    if body is None:
        return str(artifact["text"]).strip()
    published = _published(artifact["kind"], body)
    if published is not None:
        return published.strip()
    rest = {name: body[name] for name in _in_order(artifact["kind"], body) if not _is_title(name, body)}
    return "\n\n".join(_blocks(rest, 2)).strip()


def text_of(artifact: Mapping[str, Any]) -> str:
    """The title and the text, for reading on a screen."""
    title = title_of(artifact["body"])
    return "\n\n".join(part for part in (title, body_of(artifact)) if part)


def document(artifact: Mapping[str, Any]) -> str:
    """The artifact as Markdown, with everything that identifies it as YAML front matter."""
    about = {name: value for name, value in artifact.items() if name not in {"body", "text"} and value is not None}
    matter = "".join(f"{name}: {_yaml(value)}\n" for name, value in about.items())
    title = title_of(artifact["body"])
    return f"---\n{matter}---\n\n" + (f"# {title}\n\n" if title else "") + body_of(artifact) + "\n"


def documents(artifacts: Sequence[Mapping[str, Any]]) -> str:
    """All artifacts of one source in one Markdown document, with the source and the jobs as YAML front matter."""
    jobs = [str(artifact["job_id"]) for artifact in artifacts]
    matter = f"source_key: {_yaml(artifacts[0]['source_key'])}\njobs: {_yaml(jobs)}\n"
    return f"---\n{matter}---\n\n" + "\n".join(map(section, artifacts))


def section(artifact: Mapping[str, Any]) -> str:
    """An artifact among others: under its title, or the name of its kind."""
    return f"# {title_of(artifact['body']) or _label(artifact['kind'])}\n\n{body_of(artifact)}\n"


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
    """A value of YAML: JSON's are."""
    return json_text(value).translate(_LINE_BREAKS)


def _is_title(name: str, body: Mapping[str, Any]) -> bool:
    return isinstance(body[name], str) and name == next((each for each in TITLES if body.get(each)), None)


def _in_order(kind: str, body: Mapping[str, Any]) -> list[str]:
    """The body's fields in the order of the kind's artifact class, which the database does not keep."""
    from thothy_ai.jobs import registry

    known = list(registry.find(kind).artifact.model_fields) if kind in registry.names() else []
    return sorted(body, key=lambda name: known.index(name) if name in known else len(known))


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
                yield "\n".join(f"- {_item(each)}" for each in value)
            case _:
                yield f"{_label(name)}: {json_text(value)}"


def _item(value: object) -> str:
    """One line of a list; an object's texts beside each other."""
    texts = value.values() if isinstance(value, dict) else [value]
    return ": ".join(" ".join((each if isinstance(each, str) else json_text(each)).split()) for each in texts)


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()
