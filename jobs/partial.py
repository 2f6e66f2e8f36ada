"""The JSON object in an output, also in one that was cut off or stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError, from_json

from thothy_ai.jobs.plan import End, Output, stopped
from thothy_ai.jobs.text import check_encodable
from thothy_ai.jobs.verdict import Rejection, RejectionReason


def object_in(output: Output) -> tuple[Mapping[str, Any], Rejection | None]:
    """The object in an output, and why it is not whole. Of one that was cut off, the fields before the last."""
    rejection = stopped(output)
    cut_off = rejection is not None or output.end is End.TOKEN_LIMIT
    try:
        check_encodable(output.text)
        found = from_json(output.text, allow_partial=cut_off)
    except (ValueError, PydanticCustomError) as error:
        return {}, rejection or Rejection(RejectionReason.OFF_SCHEMA, f"output: is not JSON: {error}")
    if not isinstance(found, dict):
        return {}, rejection or Rejection(RejectionReason.OFF_SCHEMA, "output: is not an object")
    if not cut_off or _is_whole(output.text):
        return found, rejection
    begun = from_json(output.text, allow_partial="trailing-strings")
    whole = list(found.items()) if len(begun) > len(found) else list(found.items())[:-1]
    cut = Rejection(RejectionReason.TRUNCATED, "the output reached its token budget before the JSON was complete")
    return dict(whole), rejection or cut


def _is_whole(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True
