"""The page about the API names every field that a request may have, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from thothy_ai.http.errors import ApiError
from thothy_ai.http.openai.chat import ChatBody
from thothy_ai.http.openai.completions import CompletionBody

PAGE = Path(__file__).parents[4] / "docs/openai.md"
# What a field is for which the API has no value but the default one.
WITHOUT_MEANING = {"echo", "suffix", "prompt_cache_retention"}


def test_the_page_lists_the_fields() -> None:
    table = PAGE.read_text().split("## Fields")[1].split("##")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name.split(":")[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}
    declared = {*ChatBody.model_fields, *CompletionBody.model_fields} - WITHOUT_MEANING
    assert named | {"prompt"} == declared


def test_the_page_lists_the_codes() -> None:
    table = PAGE.read_text().split("## Errors")[1].split("\n## ")[0]
    assert {"invalid_json", "model_not_found", "engine_unavailable"} <= set(re.findall(r"`([a-z_]+)`", table))
    assert ApiError(429, "x", code="too_many_requests").body["error"]["type"] == "rate_limit_error"
