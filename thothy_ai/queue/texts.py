"""Stores the longest text of a request separately, once for all requests of the tenant that share it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from pydantic_core import from_json, to_json
from uuid_utils.compat import uuid7

MIN_SHARED_CHARS: Final = 1000  # shorter texts cost less than the reference, its index and the join


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request's JSON without the value of `field`, which is `text`; complete if these are None."""

    request: str
    field: str | None = None
    text: str | None = None
    digest: str | None = None  # of the text: SHA-256, in hexadecimal

    def values(self) -> dict[str, Any]:
        """The complete request, as JSON values by field."""
        values: dict[str, Any] = from_json(self.request)
        return values if self.field is None else values | {self.field: self.text}


def stored(request: str, known: dict[str, str] | None = None) -> StoredRequest:
    """How to store a request, a JSON object: without its longest text on the top level, if that is long.

    `known` has the texts of other requests by digest: a known text is kept only once, and new ones are added.
    """
    if len(request) < MIN_SHARED_CHARS:
        return StoredRequest(request)
    values = from_json(request)
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    field = max(texts, key=lambda name: len(texts[name]), default="")
    if len(texts.get(field, "")) < MIN_SHARED_CHARS:
        return StoredRequest(request)
    text = values.pop(field)
    digest = sha256(text.encode()).hexdigest()
    if known is not None:
        text = known.setdefault(digest, text)
    return StoredRequest(to_json(values).decode(), field, text, digest)


def shared(requests: Iterable[StoredRequest]) -> list[dict[str, Any]]:
    """The texts of these requests, each once: rows of the statement `producer/enqueue_texts`."""
    texts = {one.digest: one.text for one in requests if one.digest}
    return [{"id": str(uuid7()), "text_digest": digest, "content": text} for digest, text in texts.items()]
