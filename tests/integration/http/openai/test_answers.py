"""Whole answers of chat and of completions, as OpenAI's own client and a bare socket see them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import OpenAI

from tests.support.answering_backend import AnsweringBackend
from tests.support.openai_requests import HELLO, LIKELY, TEXT, asked, chat, events, post
from thothy_ai.engine.api import Choice, FinishReason


def test_a_chat_completion(client: OpenAI, backend: AnsweringBackend) -> None:
    answer = client.chat.completions.create(model="answering", messages=HELLO)
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content, choice.message.refusal) == ("assistant", TEXT, None)
    assert (choice.finish_reason, choice.logprobs, choice.index) == ("stop", None, 0)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (40, 20, 60)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 30
    assert answer.model == "answering"
    assert answer._request_id is not None
    request = asked(backend)
    # OpenAI's defaults, the rest of the context, before all jobs, and the queue's own prefix cache.
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.max_tokens) == (1.0, 1.0, 100)
    assert (request.priority, request.salt, request.booked, request.stream) == (500, "tenant", False, False)


def test_every_field_reaches_the_engine(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.others = (Choice("b", (), FinishReason.LENGTH),)
    answer = client.chat.completions.create(
        model="answering",
        messages=[
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c"},
        ],
        temperature=0.5, top_p=0.9, n=2, seed=-1, stop=["x", "y"], max_completion_tokens=7,
        frequency_penalty=0.1, presence_penalty=-0.1, logit_bias={"3": 5, "4": -100},
        user="u", metadata={"a": "b"}, store=False,
        extra_body={
            "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "min_tokens": 2, "stop_token_ids": [1],
            "ignore_eos": True, "best_of": 3, "priority": -10, "chat_template_kwargs": {"enable_thinking": False},
        },
    )  # fmt: skip
    assert [(each.index, each.message.content, each.finish_reason) for each in answer.choices] == [
        (0, TEXT, "stop"), (1, "b", "length"),
    ]  # fmt: skip
    request, sampling = asked(backend), asked(backend).sampling
    assert [(each.role, each.content) for each in request.messages] == [
        ("system", "Be kind."), ("user", "a\nb"), ("assistant", "c"),
    ]  # fmt: skip
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 5, 0.1)
    assert (sampling.seed, sampling.stop, sampling.max_tokens) == (2**63 - 1, ("x", "y"), 7)
    assert (sampling.frequency_penalty, sampling.presence_penalty, sampling.repetition_penalty) == (0.1, -0.1, 1.1)
    assert {bias.token: bias.value for bias in sampling.logit_bias} == {3: 5, 4: -100}
    assert (sampling.min_tokens, sampling.stop_token_ids, sampling.ignore_eos) == (2, (1,), True)
    assert (request.n, request.best_of, request.priority) == (2, 3, 490)
    assert request.schema is None
    assert request.template_options == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("wanted", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"name": "p", "schema": {"type": "null"}}}, {"type": "null"}),
        (
            {"type": "json_schema", "json_schema": {"name": "p", "strict": False, "schema": {"type": "null"}}},
            {"type": "null"},
        ),
    ],
)
def test_schemas_bind_whether_strict_or_not(address: str, backend: AnsweringBackend, wanted: Any, schema: Any) -> None:
    assert post(address, "chat/completions", chat(response_format=wanted)).status_code == 200
    given = asked(backend).schema
    assert (given and json.loads(given)) == schema


def test_what_the_engine_cannot_do_together_is_named(address: str) -> None:
    answer = post(address, "chat/completions", chat(response_format={"type": "json_object"}, stop="x"))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_greedy_choices_are_written_once(address: str, backend: AnsweringBackend, stream: bool) -> None:
    answer = post(address, "chat/completions", chat(n=3, temperature=0, best_of=5, stream=stream))
    assert (asked(backend).n, asked(backend).best_of) == (1, None)
    if not stream:
        assert [each["message"]["content"] for each in answer.json()["choices"]] == [TEXT] * 3
        return
    texts = {0: "", 1: "", 2: ""}
    for event in events(answer.text):
        for choice in event["choices"]:
            texts[choice["index"]] += choice["delta"].get("content", "")
    assert set(texts.values()) == {TEXT}


def test_log_probabilities_name_tokens_and_their_bytes(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.tokens, backend.logprobs = (b"Sch", b"\xc3", b"\xb6"), (LIKELY, None, LIKELY)
    answer = client.chat.completions.create(model="answering", messages=HELLO, logprobs=True, top_logprobs=2)
    assert answer.choices[0].logprobs is not None
    first, forced, half = answer.choices[0].logprobs.content or []
    assert (first.token, first.bytes, first.logprob) == ("Sch", [83, 99, 104], -0.5)
    assert [(each.token, each.logprob) for each in first.top_logprobs] == [("Sch", -0.5), ("\ufffd", -9999.0)]
    assert (forced.logprob, forced.top_logprobs, forced.bytes) == (0.0, [], [0xC3])
    assert (half.token, half.bytes) == ("\ufffd", [0xB6])
    assert asked(backend).sampling.logprobs == 2


def test_completions_of_several_prompts(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.answer = lambda request: [request.text or "tokens"]
    answer = client.completions.create(model="answering", prompt=["a", "b"], max_tokens=3)
    assert [(each.index, each.text) for each in answer.choices] == [(0, "a"), (1, "b")]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 80
    assert {request.sampling.max_tokens for request in backend.requests} == {3}
    client.completions.create(model="answering", prompt=[1, 2])
    assert (asked(backend).token_ids, asked(backend).sampling.max_tokens) == ((1, 2), 16)


def test_log_probabilities_of_a_completion(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.tokens, backend.logprobs = (b"Sch", b"\xc3", b"\xb6"), (LIKELY, None, LIKELY)
    answer = client.completions.create(model="answering", prompt="a", logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["Sch", "\ufffd", "\ufffd"]
    assert logprobs.token_logprobs == [-0.5, 0.0, -0.5]
    assert logprobs.text_offset == [0, 3, 3]
    assert logprobs.top_logprobs == [{"Sch": -0.5}, {}, {"Sch": -0.5}]
