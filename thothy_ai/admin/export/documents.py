"""Artifacts as Markdown documents with YAML front matter, for Hugo, Astro and Jekyll.

The title is in the front matter, where a site's layout reads it; a document of one piece does not repeat it. Nothing in
a document runs or loads anything: plain text is shown as it is, and markup in Markdown that would do so becomes text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from thothy_ai.admin.export.pieces import canonical_url, name_of, piece_of, slug, sources_of
from thothy_ai.admin.json_text import json_text
from thothy_ai.jobs.publishing.markdown import markdown
from thothy_ai.jobs.publishing.plain import description

TAIL_DIGITS = 8  # the last ones of a job's id
_NOT_PROVENANCE = frozenset({"locale", "created_at", "body", "text", "provenance", "verification", "findings", "brief"})
# YAML reads the first three as line breaks; a reader without support for front matter reads the others as markup.
_ESCAPED = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\u2028\u2029\ufeff<[]`"}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_LINE_END = re.compile(r"\r\n?")


def document(artifact: Mapping[str, Any]) -> str:
    """One artifact, with its front matter."""
    piece = piece_of(artifact)
    tail = str(artifact["job_id"])[-TAIL_DIGITS:]
    matter = {
        "title": name_of(piece),
        "description": description(piece),
        "slug": slug(piece) if piece.title else "-".join(filter(None, (slug(piece), tail))),
        "date": artifact["created_at"],
        "lang": artifact["locale"],
        "tags": list(piece.tags),
        "canonical_url": canonical_url(artifact),
        "sources": sources_of(artifact),
    }
    provenance = {name: value for name, value in artifact.items() if name not in _NOT_PROVENANCE and value is not None}
    if version := (artifact.get("provenance") or {}).get("version"):
        provenance["version"] = version
    brief = artifact.get("brief") or {}
    if brief.get("name"):
        provenance["brief"] = {"name": brief["name"], "version": brief["version"]}
    return _assembled(matter, markdown([piece], level=0), provenance)


def documents(artifacts: Sequence[Mapping[str, Any]]) -> str:
    """All artifacts of one source in one document, each under its title."""
    pieces = [piece_of(artifact) for artifact in artifacts]
    locales = {artifact["locale"] for artifact in artifacts}
    first = next((piece for piece in pieces if piece.title), pieces[0])
    matter = {
        "title": name_of(first),
        "description": description(first),
        "slug": slug(first),
        "date": max(artifact["created_at"] for artifact in artifacts),
        "lang": artifacts[0]["locale"] if len(locales) == 1 else None,
        "tags": list(dict.fromkeys(tag for piece in pieces for tag in piece.tags)),
    }
    jobs = [str(artifact["job_id"]) for artifact in artifacts]
    return _assembled(matter, markdown(pieces, level=2), {"source_key": artifacts[0]["source_key"], "jobs": jobs})


def _assembled(matter: Mapping[str, Any], text: str, provenance: Mapping[str, Any]) -> str:
    """Front matter with a line for each value that is set, and the text below it."""
    lines = [f"{name}: {_yaml(value)}" for name, value in matter.items() if value]
    if "{{" in text or "{%" in text:
        lines.append("render_with_liquid: false")  # otherwise Jekyll would fill in placeholders in the text
    lines += ["provenance:", *(f"  {name}: {_yaml(value)}" for name, value in provenance.items())]
    return "\n".join(["---", *lines, "---", "", _harmless(text)])


def _yaml(value: object) -> str:
    """A time in YAML's form; any other value as JSON, which is YAML except for a few line breaks."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return _STRING.sub(lambda found: found[0].translate(_ESCAPED), json_text(value))


def _harmless(text: str) -> str:
    """The document as it is or, if it contains unsafe markup, with tags and links outside fences turned into text."""
    from thothy_ai.jobs.checks import unsafe_markup  # noqa: PLC0415  loads all checks

    if unsafe_markup(text) is None:
        return text
    from markdown_it import MarkdownIt  # noqa: PLC0415  rarely needed

    text = _LINE_END.sub("\n", text)
    fences = (token.map for token in MarkdownIt("commonmark", {"html": False}).parse(text) if token.type == "fence")
    fenced = {line for first, end in filter(None, fences) for line in range(first, end)}
    # Entities always stand for text. A backslash could combine with one before it.
    return "\n".join(
        line if number in fenced else line.replace("<", "&lt;").replace("](", "]&#40;").replace("]:", "]&#58;")
        for number, line in enumerate(text.split("\n"))
    )
