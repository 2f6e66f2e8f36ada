"""Which bodies of OpenAI's API can be jobs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from thothy_ai.jobs import registry
from thothy_ai.jobs.plans.answers import ApiRequest
from thothy_ai.jobs.text.strings import MAX_LEVELS, visible

MESSAGES = [{"role": "user", "content": ""}]


def nested(levels: int) -> Any:
    value: Any = "a"
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"stop": "\0"}, "contains a NUL character"),
        ({"stop": ["a", {"\0": 1}]}, "contains a NUL character"),
        ({"user": "\ud800"}, "contains a lone surrogate (U+D800)"),
        ({"a\0": 1}, "contains a NUL character"),
        ({"tools": nested(MAX_LEVELS + 1)}, "is nested more than 128 levels deep"),
        ({"tools": nested(5_000)}, "is nested more than 128 levels deep"),
    ],
)
@pytest.mark.parametrize("parsed_by", ["producer", "worker"])
def test_what_cannot_be_stored_is_refused_in_any_field(extra: dict[str, Any], says: str, parsed_by: str) -> None:
    kind = registry.find("chat")
    parse = kind.request.model_validate if parsed_by == "producer" else kind.parsed
    with pytest.raises(ValidationError) as caught:
        parse({"messages": MESSAGES, **extra})
    (error,) = caught.value.errors()
    assert (error["loc"], error["msg"]) == ((next(iter(extra)),), says)


def test_other_fields_are_kept() -> None:
    fields = {"messages": MESSAGES, "stop": "", "tools": nested(MAX_LEVELS)}
    request = registry.find("chat").request.model_validate(fields)
    assert isinstance(request, ApiRequest)
    assert request.body == fields


def test_text_is_made_visible() -> None:
    assert visible("schü🙂 a\0\n\ud800") == r"schü🙂 a\x00\n\ud800"
