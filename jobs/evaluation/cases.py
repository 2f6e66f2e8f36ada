"""The cases of `thothy eval`: requests with the facts or the reference that an artifact is scored against.

One JSON object per line: `id`, `request` (its `source_file` names a file in `sources/` beside the cases), and either
`reference`, a translation, or `facts` with `expected`, the number of facts that earn a full score. A fact is a list of
alternatives; the parts of an alternative that are joined by ` + ` must stand in one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final, TypeVar

from thothy_ai.jobs.text.division import estimated_tokens

DATA: Final = Path(__file__).parent / "data"
INJECTIONS: Final = DATA / "injections.jsonl"
T = TypeVar("T")


class CaseError(Exception):
    """The file has no cases, or a wrong line."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `request` has the fields of the kind's request, the source included."""

    id: str
    request: Mapping[str, Any]
    facts: tuple[tuple[str, ...], ...] = ()
    expected: int = 0
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Injection:
    """A source that contains an instruction.

    An artifact that obeys it contains one of the texts in `obeyed`, or is written in the language `answers_in`.
    """

    id: str
    style: str
    request: Mapping[str, Any]
    text: str
    obeyed: tuple[str, ...] = ()
    answers_in: str | None = None


def bundled(kind: str) -> tuple[Case, ...]:
    """The cases of a kind that come with this package. Raises `CaseError` if there are none."""
    path = DATA / f"{kind}.jsonl"
    if not path.is_file():
        raise CaseError(f"no cases of the kind {kind!r} are bundled; pass a file of your own with --cases-file")
    return read_cases(path)


def read_cases(path: Path) -> tuple[Case, ...]:
    """The cases in a file. Raises `CaseError`, naming the line."""
    cases = read_lines(path, _case)
    if not cases:
        raise CaseError(f"{path}: has no cases")
    if len({case.id for case in cases}) < len(cases):
        raise CaseError(f"{path}: two cases have the same id")
    return tuple(cases)


def lengthened(cases: Iterable[Case], tokens: int, texts: Sequence[str]) -> tuple[Case, ...]:
    """The cases with sources of about this many tokens: a collection of the other `texts`, repeated as often as needed,
    with the case's own source a third of the way through.
    """
    return tuple(
        replace(case, request={**case.request, "source": _collection(case.request["source"].strip(), tokens, texts)})
        for case in cases
    )


def _collection(source: str, tokens: int, texts: Sequence[str]) -> str:
    others = [text.strip() for text in texts if text.strip() != source]
    chosen, left = list[str](), tokens - estimated_tokens(source)
    for text in cycle(others):
        left -= estimated_tokens(text)
        if left < 0:
            break
        chosen.append(text)
    place = len(chosen) // 3
    return "\n\n".join((*chosen[:place], source, *chosen[place:]))


def injections() -> tuple[Injection, ...]:
    """The bundled attempts at injection, in several languages and styles."""
    return tuple(read_lines(INJECTIONS, _injection))


def read_lines(path: Path, parse: Callable[[Mapping[str, Any], Path], T]) -> list[T]:
    """The parsed lines of a file of JSON objects. Raises `CaseError`, naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"{path}: {getattr(error, 'strerror', None) or 'is not UTF-8'}") from error
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries += [parse(json.loads(line), path.parent)] if line.strip() else []
        except KeyError as error:
            raise CaseError(f"{path}, line {number}: {error.args[0]!r} is missing") from error
        except (ValueError, TypeError, AttributeError, OSError) as error:
            raise CaseError(f"{path}, line {number}: {error}") from error
    return entries


def _case(entry: Mapping[str, Any], folder: Path) -> Case:
    facts = tuple(tuple(map(_text, alternatives)) for alternatives in entry.get("facts", ()))
    if not all(facts):
        raise ValueError("a fact has no alternatives")
    return Case(
        id=_text(entry["id"]),
        request=with_source(entry["request"], folder),
        facts=facts,
        expected=int(entry.get("expected", len(facts))),
        reference=entry.get("reference"),
    )


def _injection(entry: Mapping[str, Any], folder: Path) -> Injection:
    request = with_source(entry["request"], folder)
    paragraphs = request["source"].strip().split("\n\n")
    place = {"start": 0, "middle": 1, "end": len(paragraphs)}[entry["at"]]
    return Injection(
        id=entry["id"],
        style=entry["style"],
        request=request | {"source": "\n\n".join([*paragraphs[:place], entry["text"], *paragraphs[place:]])},
        text=entry["text"],
        obeyed=tuple(entry["obeyed"]),
        answers_in=entry.get("answers_in"),
    )


def with_source(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The fields of a request, with the text of `source_file` as the source."""
    fields = dict(request)
    if "source_file" in fields:
        fields["source"] = (folder / "sources" / _text(fields.pop("source_file"))).read_text(encoding="utf-8")
    return fields


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not a text")
    return value
