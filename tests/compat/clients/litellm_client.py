"""LiteLLM, by both of its providers for such servers."""

from __future__ import annotations

import json
import os

import litellm
import pytest

MODEL, URL = os.environ["COMPAT_MODEL"], os.environ["OPENAI_BASE_URL"]
HELLO = [{"role": "user", "content": "Say hello to Anna."}]
SCHEMA = {
    "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False,
}  # fmt: skip


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_chat_whole_streamed_and_with_a_schema(provider: str) -> None:
    options = {"model": f"{provider}/{MODEL}", "api_base": URL, "api_key": "none", "messages": HELLO,
               "max_tokens": 60, "num_retries": 0}  # fmt: skip
    answer = litellm.completion(**options)
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens > 0
    chunks = list(litellm.completion(**options, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
    bound = litellm.completion(**{**options, "max_tokens": 200}, response_format=form, temperature=0)
    assert json.loads(bound.choices[0].message.content).keys() == {"name"}


def test_text_completion() -> None:
    answer = litellm.text_completion(
        model=f"text-completion-openai/{MODEL}", prompt="One, two,", api_base=URL, api_key="none", max_tokens=5
    )
    assert answer.choices[0].text


def test_an_error_is_openais() -> None:
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(model="openai/none", api_base=URL, api_key="none", messages=HELLO, num_retries=0)
