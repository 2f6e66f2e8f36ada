"""Reads jobs from a JSONL file. Errors name the line."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from typer import BadParameter

from thothy_ai.cli.inputs import times
from thothy_ai.errors import EntryError, IdempotencyConflictError, InvalidJobError
from thothy_ai.jobs import Request
from thothy_ai.producer import EnqueueOptions
from thothy_ai.producer.drafts import parse_request

OPTIONS = ("priority", "deadline", "not_before", "idempotency_key", "max_attempts", "max_compute_seconds", "model")
KEYS = ("kind", "request", *OPTIONS)


class JobLines:
    """The entries for `Producer.enqueue_many`, read lazily from a file (`-`: standard input) without blank lines.

    Iteration raises `InvalidJobError`, and `BadParameter` if the file cannot be read.
    """

    def __init__(self, file: str) -> None:
        self.file = "standard input" if file == "-" else file
        self._path = None if file == "-" else Path(file)
        self._numbers: list[int] = []  # the lines that became entries

    def __iter__(self) -> Iterator[tuple[Request, EnqueueOptions]]:
        for number, line in self._lines():
            try:
                text = line.decode("utf-8-sig")
                entry = _entry(text) if text.strip() else None
            except UnicodeDecodeError as error:
                wrong = InvalidJobError("line", f"is not UTF-8: {error.reason}")
                raise wrong.at(None, f"{self.file}:{number}") from None
            except InvalidJobError as error:
                raise error.at(None, f"{self.file}:{number}") from None
            if entry is not None:
                self._numbers.append(number)
                yield entry

    def located(self, error: EntryError) -> EntryError:
        """The error of `enqueue_many`, naming files and lines instead of entries."""
        if error.entry is not None:
            error.at(error.entry, self._place(error.entry))
        if isinstance(error, IdempotencyConflictError) and error.other is not None:
            error.other_place = self._place(error.other)
        return error

    def _place(self, entry: int) -> str:
        return f"{self.file}:{self._numbers[entry]}"

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        try:
            with nullcontext(sys.stdin.buffer) if self._path is None else self._path.open("rb") as opened:
                yield from enumerate(opened, 1)
        except OSError as error:
            raise BadParameter(f"cannot read {self.file}: {error.strerror}") from None


def _entry(line: str) -> tuple[Request, EnqueueOptions]:
    try:
        # Then an error at the end names this line, not the next one.
        document = json.loads(line.rstrip(), object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        raise InvalidJobError("line", f"is not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # RecursionError: thousands of nested brackets
        raise InvalidJobError("line", f"is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidJobError("line", "is not a JSON object")
    if unknown := sorted(document.keys() - set(KEYS)):
        raise InvalidJobError(unknown[0], f"is not a known key; supported: {', '.join(KEYS)}")
    for name in ("kind", "request"):
        if name not in document:
            raise InvalidJobError(name, "is missing")
    request = parse_request(str(document["kind"]), document["request"])
    options = {name: document[name] for name in OPTIONS if document.get(name) is not None}
    for name in options.keys() & {"deadline", "not_before"}:
        try:
            options[name] = times.ahead(str(options[name]))
        except BadParameter as error:
            raise InvalidJobError(name, str(error)) from None
    return request, EnqueueOptions(**options)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object. Raises `InvalidJobError` for a repeated key, since JSON does not say which value counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise InvalidJobError(twice, "occurs twice in one object")
    return found
