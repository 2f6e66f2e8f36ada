"""Reads the lines of a batch's input: one request each, with an id of its own.

An error in a body shows when its job runs, as for a single request, and fails that line only. A line whose model no
engine serves is not run; it fails alone if another line can run. A malformed line fails the whole batch before any of
it runs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, BinaryIO, NamedTuple
from uuid import UUID

from thothy_ai.errors import InvalidJobError
from thothy_ai.jobs import Request, registry
from thothy_ai.jobs.kinds import chat, completion, response
from thothy_ai.jobs.text.strings import visible
from thothy_ai.producer.drafts import EnqueueOptions, draft, validated
from thothy_ai.queue import strict_json
from thothy_ai.settings import Settings

logger = logging.getLogger(__name__)

ENDPOINTS = {kind.ROUTE: kind.KIND.name for kind in (chat, completion, response)}
MAX_LINES = 50_000  # OpenAI's
MAX_LINE = 16_000_000  # bytes: a job's request may have as many characters
MAX_CUSTOM_ID = 400
MAX_ERRORS = 100  # reported errors
MAX_SHOWN = 500  # characters of a message: it may quote the line
FIELDS = ("custom_id", "method", "url", "body")
MARK = b"\xef\xbb\xbf"  # byte order mark of some programs


class LineProblem(NamedTuple):
    """Why an input is refused, as in the batch's `errors`. Line numbers count from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None

    @property
    def shown(self) -> dict[str, Any]:
        """The problem in characters that Postgres can store, whatever the line contains."""
        param = self.param and visible(self.param[:MAX_SHOWN])
        return self._asdict() | {"message": visible(self.message[:MAX_SHOWN]), "param": param}


class LineError(Exception):
    """A line is not valid."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.param = code, param


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A valid line as a job. If it is not `served`, it asks for a model or an adapter that no engine has."""

    number: int
    custom_id: str
    request: Request
    options: EnqueueOptions
    served: bool = True

    def key(self, batch: UUID) -> str:
        """The idempotency key of its job, from which `place_of` reads number and id again."""
        return f"{batch.hex}:{self.number}:{self.custom_id}"


def place_of(key: str) -> tuple[int, str]:
    """The number of the line and its id."""
    _, number, custom_id = key.split(":", 2)
    return int(number), custom_id


class LineReader:
    """Reads lines for an endpoint. `models` are the names that engines serve."""

    def __init__(self, endpoint: str, models: Collection[str] = ()) -> None:
        self._endpoint = endpoint
        self._kind = registry.find(ENDPOINTS[endpoint])
        self._models = models

    def raw(self, content: BinaryIO, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Numbers and texts of the lines that are not blank. A line that is too long comes in invalid parts."""
        lines = enumerate(iter(lambda: content.readline(MAX_LINE + 1), b""), 1)
        return ((number, line) for number, line in islice(lines, after, None) if line.strip())

    def read(self, number: int, text: bytes) -> BatchLine:
        """The line as a job. Raises `LineError`, and `InvalidJobError` for its body."""
        try:
            line = strict_json.read(text.strip().removeprefix(MARK))
        except ValueError as error:
            if len(text) > MAX_LINE:
                raise LineError("invalid_json_line", f"has more than {MAX_LINE:,} bytes") from None
            raise LineError("invalid_json_line", f"is not valid JSON: {error}") from None
        if not isinstance(line, dict):
            raise LineError("invalid_json_line", "is not a JSON object")
        if unknown := sorted(line.keys() - set(FIELDS)):
            raise LineError("unknown_parameter", f"{unknown[0]} is not a field of a line", unknown[0])
        for field in FIELDS:
            if field not in line:
                raise LineError("missing_required_parameter", f"{field} is missing", field)
        if line["method"] != "POST":
            raise LineError("invalid_method", "method is not 'POST'", "method")
        if line["url"] != self._endpoint:
            raise LineError("mismatched_url", f"url is not the batch's endpoint, {self._endpoint!r}", "url")
        return self._line(number, _custom_id(line["custom_id"]), line["body"])

    def _line(self, number: int, custom_id: str, body: Any) -> BatchLine:
        if not isinstance(body, dict):
            raise LineError("invalid_value", "body is not an object", "body")
        if body.get("stream"):
            raise LineError("invalid_value", "stream: a batch has no streams", "body.stream")
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise LineError("missing_required_parameter", "model is missing", "body.model")
        priority = body.pop("priority", None) or 0
        if type(priority) is not int or not -100 <= priority <= 100:
            raise LineError("invalid_value", "priority is not a whole number from -100 to 100", "body.priority")
        served, options = model in self._models, EnqueueOptions(priority, model=model)
        return BatchLine(number, custom_id, validated(self._kind, body), options, served)


def _checked(
    reader: LineReader, number: int, text: bytes, settings: Settings, now: datetime
) -> BatchLine | LineProblem:
    """A line that could be enqueued, or why it cannot be."""
    try:
        line = reader.read(number, text)
        draft(line.request, line.options, settings, now)  # can still refuse the line
    except LineError as error:
        return LineProblem(error.code, str(error), number, error.param)
    except InvalidJobError as error:
        return LineProblem("invalid_value", str(error), number, f"body.{error.field}")
    except Exception:
        logger.exception("line %d of a batch's input cannot be read", number)
        return LineProblem("server_error", "the server failed to read this line: its log says why", number)
    return line


def not_served(model: str) -> str:
    """Why a request for a model is not run."""
    return f"no engine has ever served the model {model!r}"


def names_in(text: bytes) -> tuple[str, str]:
    """The id and the model of a line that an earlier version accepted, even if this one would not."""
    line = json.loads(text.strip().removeprefix(MARK))
    return str(line["custom_id"]), str(line["body"]["model"])


def problems_of(
    reader: LineReader, content: BinaryIO, settings: Settings
) -> tuple[list[LineProblem], int, int, set[str | None]]:
    """The problems of an input, its numbers of lines and requests, and their models. Requests that no engine serves are
    problems only if there are no others, or along with other problems.
    """
    problems: list[LineProblem] = []
    unserved: list[LineProblem] = []
    known: dict[str, int] = {}  # line numbers by id
    models: set[str | None] = set()
    number, requests, now = 0, 0, datetime.now(UTC)
    for number, text in reader.raw(content):
        requests += 1
        line = _checked(reader, number, text, settings, now)
        if isinstance(line, LineProblem):
            problems.append(line)
        else:
            models.add(line.options.model)
            if (first := known.setdefault(line.custom_id, number)) != number:
                says = f"custom_id {line.custom_id!r} is that of line {first}, too"
                problems.append(LineProblem("duplicate_custom_id", says, number, "custom_id"))
            elif not line.served:
                says = not_served(str(line.options.model))
                unserved.append(LineProblem("model_not_found", says, number, "body.model"))
        if requests > MAX_LINES:
            problems = [LineProblem("too_many_requests", f"the file has more than {MAX_LINES:,} requests")]
        if requests > MAX_LINES or len(problems) == MAX_ERRORS:
            break
    if not requests:
        problems.append(LineProblem("empty_file", "the file has no requests"))
    if unserved and (problems or len(unserved) == requests):
        problems = sorted([*problems, *unserved], key=lambda problem: problem.line or 0)[:MAX_ERRORS]
    return problems, number, requests, models


def _custom_id(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_CUSTOM_ID:
        raise LineError("invalid_value", f"custom_id is not a text of 1 to {MAX_CUSTOM_ID} characters", "custom_id")
    if not value.isprintable():
        raise LineError("invalid_value", "custom_id holds characters that cannot be printed", "custom_id")
    return value
