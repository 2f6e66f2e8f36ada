"""Labelled texts, for measuring validators: artifacts that an editor judged, in a folder with a file per kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from thothy_ai.jobs.api.verdict import RejectionReason
from thothy_ai.jobs.evaluation.cases import with_source

KINDS = ("trend_summary", "hook", "translation", "report_section", "report")
SPLITS = ("tuned", "held_out", "fresh", "development", "unseen")
FIELDS = {"id", "kind", "language", "request", "artifact", "label", "reasons", "split", "note"}


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One artifact with its label.

    `language` is the text's language, a two-letter code. `reasons` are the correct reasons for rejection; an accepted
    text has none. `request` contains the source, even if the file only names it.
    """

    id: str
    kind: str
    language: str
    request: Mapping[str, Any]
    artifact: Mapping[str, Any]
    accepted: bool
    reasons: frozenset[RejectionReason]
    split: Literal["tuned", "held_out", "fresh", "development", "unseen"]
    note: str


def load(folder: Path) -> list[LabelledText]:
    """Return all texts in a folder and its subfolders, by kind. Raises `ValueError` for a line that breaks the format,
    with file and line, and for a missing or empty folder; `OSError` if a file cannot be read.
    """
    texts = list[LabelledText]()
    for path in (path for kind in KINDS for path in sorted(folder.rglob(f"{kind}.jsonl"))):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path.name}: {error}") from error
        for number, line in enumerate(lines, 1):
            try:
                texts.append(_text(json.loads(line), path))
            except (KeyError, ValueError) as error:
                raise ValueError(f"{path.name}, line {number}: {error}") from error
    if not texts:
        raise ValueError(f"{folder} has no labelled texts, in files such as {KINDS[0]}.jsonl")
    return texts


def _text(entry: Mapping[str, Any], path: Path) -> LabelledText:
    if not isinstance(entry, Mapping):
        raise ValueError("expected a JSON object")  # noqa: TRY004 - as every error of the format
    if entry.keys() != FIELDS:
        raise ValueError(f"has the wrong fields: {sorted(entry.keys() ^ FIELDS)}")
    if entry["kind"] != path.stem:
        raise ValueError(f"is a {entry['kind']} in the file of {path.stem}")
    if entry["label"] not in {"accept", "reject"} or entry["split"] not in SPLITS:
        raise ValueError("has an unknown label or split")
    if (entry["label"] == "reject") != bool(entry["reasons"]):
        raise ValueError("a rejected text needs reasons, and an accepted one has none")
    if ("source" in entry["request"]) == ("source_file" in entry["request"]):
        raise ValueError("needs either source or source_file")
    reasons = frozenset(map(RejectionReason, entry["reasons"]))
    return LabelledText(
        id=entry["id"],
        kind=entry["kind"],
        language=entry["language"],
        request=with_source(entry["request"], path.parent),
        artifact=entry["artifact"],
        accepted=entry["label"] == "accept",
        reasons=reasons,
        split=entry["split"],
        note=entry["note"],
    )
