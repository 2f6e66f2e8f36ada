"""Streams the labelled texts through the early checks: what is stopped, where, and whether the kind rejects it.

    python -m benchmarks.early_stops [FOLDER]

Each text is written out as the output of the call that writes it, and looked at every 12 characters. Prints a row per
kind: how many outputs the validators reject, how many of these are stopped before their end, and how much of those is
then not written. An output that is stopped though the validators accept it is an error, and listed: exit code 1.

Summaries and hooks have no early checks, since their plans repair them part by part; their texts count as prose here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.validators import FOLDER
from thothy_ai.evaluation.validators import judge
from thothy_ai.jobs import Early, Rejection, registry
from thothy_ai.jobs.early import doomed
from thothy_ai.jobs.evaluation.labelled import KINDS, LabelledText, load
from thothy_ai.jobs.kinds.report.faults import early_prose
from thothy_ai.jobs.kinds.translation import task_of
from thothy_ai.jobs.kinds.translation.faults import early_checks
from thothy_ai.jobs.kinds.translation.inline import masked

STRIDE = 12  # characters between two looks; an engine's reports are further apart
FIRST = 60  # characters before the first
MAX_WORDS = 450  # of texts whose kind sets no limit to them together


@dataclass(frozen=True, slots=True)
class Written:
    """An output as its call writes it: JSON, with the early checks of the call."""

    id: str
    json: str
    early: Early


@dataclass(frozen=True, slots=True)
class Stopped:
    """What stopped an output after so many characters, and whether its kind rejects the whole text."""

    written: Written
    rejection: Rejection
    characters: int
    rightly: bool

    @property
    def unwritten(self) -> float:
        """The share of the output that was not written."""
        return 1 - self.characters / len(self.written.json)


def outputs(text: LabelledText) -> Iterator[Written]:
    """The outputs that a labelled text is made of; none for a translation that its plan divides."""
    request: Any = registry.find(text.kind).request.model_validate(dict(text.request))
    if text.kind == "translation":
        original, translated = request.original, str(text.artifact["text"])
        if "\n" not in original and not masked(original).values and not masked(translated).values:
            yield _written(text, "text", translated, early_checks(original, task_of(request)))
        return
    for field, prose in _prose(text.kind, text.artifact):
        yield _written(text, field, prose, early_prose((field,), request.source, request, MAX_WORDS))


def _written(text: LabelledText, field: str, value: str | list[str], early: Early) -> Written:
    return Written(text.id, json.dumps({field: value}, ensure_ascii=False, separators=(",", ":")), early)


def _prose(kind: str, artifact: Mapping[str, Any]) -> Iterator[tuple[str, str | list[str]]]:
    """The prose of an artifact, by the fields of the outputs that it would be written in."""
    if kind == "trend_summary":
        points = [point["point"] for point in artifact["key_points"]]
        yield "paragraphs", [artifact["standfirst"], *points, artifact["why_it_matters"]]
    elif kind == "hook":
        yield "paragraphs", [variant["text"] for variant in artifact["variants"]]
    else:
        sections = artifact["sections"] if kind == "report" else [artifact]
        yield from (("paragraphs", section["body"].split("\n\n")) for section in sections)
    if kind == "report":
        yield "summary", artifact["summary"]


def stop(written: Written, *, rightly: bool, stride: int = STRIDE) -> Stopped | None:
    """Where an output is stopped, if it is."""
    for end in range(FIRST, len(written.json) + stride, stride):
        if rejection := doomed(written.json[:end], written.early):
            return Stopped(written, rejection, min(end, len(written.json)), rightly)
    return None


def main() -> int:
    """Print the table, and what is stopped wrongly."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    texts = load(parser.parse_args().folder)
    wrongly = [found for kind in KINDS for found in _report(kind, [text for text in texts if text.kind == kind])]
    for found in wrongly:
        print(f"stopped wrongly: {found.written.id}: {found.rejection}")
    return 1 if wrongly else 0


def _report(kind: str, texts: list[LabelledText]) -> list[Stopped]:
    """Print a kind's row; returns what is stopped wrongly."""
    each = [(written, judge(text).gate is not None) for text in texts for written in outputs(text)]
    found = [stopped for written, rejected in each if (stopped := stop(written, rightly=rejected))]
    rejected = sum(rejected for _, rejected in each)
    share = mean([stopped.unwritten for stopped in found]) if found else 0.0
    print(f"{kind:16}{len(each):5} outputs, {rejected:4} rejected, {len(found):4} stopped with {share:.0%} unwritten")
    return [stopped for stopped in found if not stopped.rightly]


if __name__ == "__main__":
    raise SystemExit(main())
