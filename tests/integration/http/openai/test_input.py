"""What a request may say, and how one that says something else is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.answering_backend import AnsweringBackend
from tests.support.openai_requests import HELLO, asked, chat, post


def inner(key: str, levels: int) -> Any:
    """Objects that are nested so deep."""
    return {key: inner(key, levels - 1)} if levels else {}


WRONG = [
    (b"", "invalid_json", None),
    (b"{", "invalid_json", None),
    (b"\xff\xfe", "invalid_json", None),
    (b'{"model": NaN}', "invalid_json", None),
    (b'{"model": "a", "model": "b"}', "invalid_json", None),
    (b"[" * 200_000 + b"]" * 200_000, "invalid_json", None),
    (b'{"seed": ' + b"9" * 5_000 + b"}", "invalid_json", None),
    (b'{"temperature": 1e400}', "invalid_json", None),
    (b'{"metadata": {"a": -1e400}}', "invalid_json", None),
    (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "invalid_json", None),
    (chat(response_format=inner("type", 97)), "invalid_value", "response_format.type"),
    ([], "invalid_value", None),
    ({}, "missing_required_parameter", "model"),
    ({"model": "answering"}, "missing_required_parameter", "messages"),
    (chat(messages=[]), "invalid_value", "messages"),
    (chat(messages="hi"), "invalid_value", "messages"),
    (chat(messages=[{"role": "wizard", "content": "x"}]), "invalid_value", "messages.0.role"),
    (chat(messages=[{"role": "user"}]), "missing_required_parameter", "messages.0.content"),
    (chat(messages=[{"role": "user", "content": 1}]), "invalid_value", "messages.0.content"),
    (
        chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
        "unsupported_parameter",
        "messages.0.content",
    ),
    *(
        (chat(messages=[{"role": "user", "content": [part]}]), code, f"messages.0.content.0.{field}")
        for part, code, field in (
            ({"type": "text", "text": "x", "cache_control": {}}, "unsupported_parameter", "cache_control"),
            ({"type": "text", "text": 1}, "invalid_value", "text"),
            ({"type": "text", "text": None}, "missing_required_parameter", "text"),
            ({"type": "text", "text": {"text": "x"}}, "invalid_value", "text"),
            ({"type": "text", "text": {"text": {"text": 5}}}, "invalid_value", "text"),
            ({"type": "text", "text": {"text": None}}, "invalid_value", "text"),
            ({"type": "refusal", "refusal": {"refusal": "x"}}, "invalid_value", "refusal"),
            ({"type": "image_url", "image_url": {}, "detail": "low"}, "unsupported_parameter", "detail"),
            (
                {"type": "image_url", "image_url": {"detail": "high"}, "detail": "low"},
                "unsupported_parameter",
                "detail",
            ),
        )
    ),
    (chat(temperature="0"), "invalid_value", "temperature"),
    (chat(temperature=True), "invalid_value", "temperature"),
    (chat(temperature=3), "invalid_value", "temperature"),
    (chat(top_p=-0.1), "invalid_value", "top_p"),
    (chat(n=0), "invalid_value", "n"),
    (chat(n=1.5), "invalid_value", "n"),
    (chat(max_tokens=0), "invalid_value", "max_tokens"),
    (chat(max_completion_tokens=-1), "invalid_value", "max_completion_tokens"),
    (chat(seed=2**63), "invalid_value", "seed"),
    (chat(stop=[""]), "invalid_value", "stop.0"),
    (chat(stop=["x"] * 65), "invalid_value", "stop"),
    (chat(priority=-400), "invalid_value", "priority"),
    (
        chat(messages=[{"role": "user", "content": [{"type": "text"}]}]),
        "missing_required_parameter",
        "messages.0.content.0.text",
    ),
    (chat(logit_bias={"x": 1}), "invalid_value", "logit_bias"),
    (chat(logit_bias={"1": 101}), "invalid_value", "logit_bias.1"),
    (chat(top_logprobs=2), "invalid_value", "top_logprobs"),
    (chat(logprobs=True, top_logprobs=21), "invalid_value", "top_logprobs"),
    (chat(stream="yes"), "invalid_value", "stream"),
    (chat(stream_options={"include_usage": True}), "invalid_value", "stream_options"),
    (chat(messages=[{"role": "user", "content": []}]), "missing_required_parameter", "messages.0.content"),
    (chat(messages=[*HELLO, {"role": "user", "content": "x", "refusal": "no"}]), "invalid_value", "messages.1.refusal"),
    (
        chat(messages=[{"role": "user", "content": [{"type": "refusal", "refusal": "no"}]}]),
        "invalid_value",
        "messages.0.content",
    ),
    (chat(top_k=10**30), "invalid_value", "top_k"),
    (chat(stop_token_ids=[2**31]), "invalid_value", "stop_token_ids.0"),
    (chat(min_tokens=10**30), "invalid_value", "min_tokens"),
    (chat(store=True), "invalid_value", "store"),
    (chat(response_format={"type": "xml"}), "invalid_value", "response_format.type"),
    (chat(response_format={"type": "json_schema"}), "missing_required_parameter", "response_format.json_schema"),
    (
        chat(response_format={"type": "json_schema", "json_schema": {"name": "x"}}),
        "missing_required_parameter",
        "response_format.json_schema.schema",
    ),
    (chat(min_tokens=9, max_tokens=3), "invalid_value", "min_tokens"),
    (chat(reasoning_effort="high"), "unsupported_parameter", "reasoning_effort"),
    (chat(messages=[{"role": "user", "content": "\ud800"}]), "invalid_value", "messages.0.content"),
    (chat(metadata={"a": {"\udfff": 1}}), "invalid_value", "metadata.a"),
    (chat(chat_template_kwargs={"$a": 1}), "invalid_value", "chat_template_kwargs"),
]


@pytest.mark.parametrize(("body", "code", "param"), WRONG)
def test_bad_input_is_named(address: str, backend: AnsweringBackend, body: Any, code: str, param: str | None) -> None:
    answer = post(address, "chat/completions", body)
    said = answer.json()["error"]
    assert (answer.status_code, said["code"], said["param"]) == (400, code, param), said
    assert said["message"]
    assert not backend.requests


def test_token_ids_are_bounded(address: str, backend: AnsweringBackend) -> None:
    answer = post(address, "completions", {"model": "answering", "prompt": [1, 10**30]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt.1")
    assert post(address, "chat/completions", chat(chat_template_kwargs={"a": 10**30})).status_code == 200
    assert asked(backend).template_options == {"a": 1e30}


@pytest.mark.parametrize(
    "said",
    [
        {"content": None, "refusal": "I will not."},
        {"refusal": "I will not."},
        {"content": [{"type": "refusal", "refusal": "I will not."}]},
    ],
)
def test_a_refusal_is_sent_back(address: str, backend: AnsweringBackend, said: dict[str, Any]) -> None:
    messages = [*HELLO, {"role": "assistant", **said}, *HELLO]
    assert post(address, "chat/completions", chat(messages=messages)).status_code == 200
    assert asked(backend).messages[1].content == "I will not."


def test_fields_that_are_null_are_left_out(address: str, backend: AnsweringBackend) -> None:
    names = ("temperature", "top_p", "n", "seed", "stop", "max_tokens", "logprobs", "tools", "tool_choice", "user")
    unsupported = ("audio", "modalities", "prediction", "reasoning_effort", "verbosity")
    content = [{"type": "text", "text": "hello", "cache_control": None}]
    body = chat(messages=[{"role": "user", "content": content, "refusal": None, "unknown": None}])
    assert post(address, "chat/completions", body | dict.fromkeys(names + unsupported)).status_code == 200
    assert asked(backend).sampling.temperature == 1.0
    for name in unsupported:
        assert post(address, "chat/completions", chat(**{name: "low"})).json()["error"]["param"] == name
