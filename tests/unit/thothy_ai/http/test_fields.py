"""The page about the API names every field that a request may have, and no other."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from thothy_ai.http.errors import ApiError
from thothy_ai.http.openai.chat import ChatBody
from thothy_ai.http.openai.completions import CompletionBody
from thothy_ai.http.openai.fields import parsed
from thothy_ai.http.openai.responses import ResponseBody

PAGE = Path(__file__).parents[4] / "docs/openai.md"
# What a field is for which the API has no value but the default one.
WITHOUT_MEANING = {"echo", "prompt_cache_retention"}


def test_the_page_lists_the_fields() -> None:
    table = PAGE.read_text().split("## Fields")[1].split("##")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name.split(":")[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}
    declared = {*ChatBody.model_fields, *CompletionBody.model_fields} - WITHOUT_MEANING
    assert named | {"prompt"} == declared


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"stop": ["a"] * 100}, "stop: must have at most 64 items"),  # and not: must be text
        ({"stop": 5}, "stop: must be text"),
        ({"store": True}, "store: must be false"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name: must match ^[a-z"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages.0.content.0: must be an object"),
        ({"messages": 5}, "messages: must be a list"),
        ({"messages": None}, "messages is missing"),
    ],
)
def test_what_is_wrong_is_said_plainly(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ApiError) as refused:
        parsed(ChatBody, {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields})
    assert str(refused.value).startswith(says)


def test_what_an_item_may_be_is_said_plainly() -> None:
    with pytest.raises(ApiError, match=r"input\.0: must be of the type message, function_call") as refused:
        parsed(ResponseBody, {"model": "m", "input": [{"type": "item_reference"}]})
    assert refused.value.param == "input.0"


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ([[1, 2, -1]], "prompt.0.2: must be at least 0"),
        ([[1], [2, 3, 4, 2**70, "x"]], "prompt.1.3: must be less than 2147483648"),
        ([["a", "b", "c"], [1]], "prompt.0.0: must be a whole number"),
        ([1, 2, [3], 4], "prompt.2: must be"),
    ],
)
def test_items_of_lists_of_any_length_have_their_places(prompt: list[Any], says: str) -> None:
    with pytest.raises(ApiError) as refused:
        parsed(CompletionBody, {"model": "m", "prompt": prompt})
    assert str(refused.value).startswith(says)


MANY = 30_000
WRONG_PART = {"type": "text", "text": 1}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"logit_bias": {str(token): "x" for token in range(MANY)}}, "logit_bias.0: must be a number"),
        ({"metadata": {str(key): {"a": None} for key in range(MANY)}}, "metadata.0: must be text"),
        ({"chat_template_kwargs": {str(key): [] for key in range(MANY)}}, "chat_template_kwargs.0: must be"),
        ({"messages": [{"role": "user", "content": [WRONG_PART] * 1_000}] * 30}, "messages.0.content.0.text: must be"),
        ({"messages": [{"role": "user", "content": [WRONG_PART] * 30}] * 1_000}, "messages.0.content.0.text: must be"),
        ({f"field{number}": None for number in range(MANY)} | {"wrong": 1}, "wrong is not supported"),
        ({f"field{number}": 1 for number in range(MANY)}, "field0 is not supported"),
    ],
    ids=lambda each: str(each)[:24],
)
def test_a_body_of_which_all_is_wrong_is_refused_as_quickly_as_it_is_read(fields: dict[str, Any], says: str) -> None:
    """To judge holds the interpreter's lock, whatever thread does it."""
    began = time.process_time()
    with pytest.raises(ApiError) as refused:
        parsed(ChatBody, {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields})
    assert str(refused.value).startswith(says)
    assert time.process_time() - began < 5


def test_the_page_lists_the_codes() -> None:
    table = PAGE.read_text().split("## Errors")[1].split("\n## ")[0]
    assert {"invalid_json", "model_not_found", "engine_unavailable"} <= set(re.findall(r"`([a-z_]+)`", table))
    assert ApiError(429, "x", code="too_many_requests").body["error"]["type"] == "rate_limit_error"
