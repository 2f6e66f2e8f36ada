"""Parses outputs: into an artifact, or a JSON object, even if the output was cut off or stopped."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError, from_json
from typing_extensions import TypeVar

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.plan import End, Output, stopped
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.problems import describe
from thothy_ai.jobs.text.strings import check_encodable

A = TypeVar("A", bound=Artifact, default=Artifact)

_REASONS = {
    "string_too_short": RejectionReason.TOO_SHORT,
    "string_too_long": RejectionReason.TOO_LONG,
    "too_short": RejectionReason.TOO_SHORT,
    "too_long": RejectionReason.TOO_LONG,
}


def parse(artifact: type[A], output: Output) -> A | Rejection:
    """The artifact in an output, or the reason why there is none."""
    if rejection := stopped(output):
        return rejection
    if not output.text.strip():
        return Rejection(RejectionReason.EMPTY, "the output is empty")
    try:
        return artifact.model_validate_json(output.text.encode("utf-8", "surrogatepass"))
    except ValidationError as error:
        return rejection_of(error, truncated=output.end is End.TOKEN_LIMIT)


def rejection_of(error: ValidationError, *, truncated: bool = False) -> Rejection:
    """The rejection of an output that does not parse, by its first error."""
    first = error.errors(include_url=False, include_input=False)[0]
    if truncated and first["type"] == "json_invalid":
        return Rejection(RejectionReason.TRUNCATED, "the output reached its token budget before the JSON was complete")
    where = ".".join(str(part) for part in first["loc"]) or "output"
    reason = _REASONS.get(first["type"], RejectionReason.OFF_SCHEMA)
    return Rejection(reason, f"{where}: {describe(first)}")


def object_in(output: Output) -> tuple[Mapping[str, Any], Rejection | None]:
    """The object in an output, and why it is incomplete, if it is. If the output was cut off, an unfinished last field
    is dropped.
    """
    rejection = stopped(output)
    cut_off = rejection is not None or output.end is End.TOKEN_LIMIT
    try:
        check_encodable(output.text)
        found = from_json(output.text, allow_partial=cut_off)
    except (ValueError, PydanticCustomError) as error:
        return {}, rejection or Rejection(RejectionReason.OFF_SCHEMA, f"output: is not JSON: {error}")
    if not isinstance(found, dict):
        return {}, rejection or Rejection(RejectionReason.OFF_SCHEMA, "output: is not an object")
    if not cut_off:
        return found, rejection
    with suppress(ValueError):
        from_json(output.text)
        return found, rejection  # complete after all
    begun = from_json(output.text, allow_partial="trailing-strings")
    whole = list(found.items()) if len(begun) > len(found) else list(found.items())[:-1]
    cut = Rejection(RejectionReason.TRUNCATED, "the output reached its token budget before the JSON was complete")
    return dict(whole), rejection or cut
