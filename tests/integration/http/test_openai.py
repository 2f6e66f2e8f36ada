"""`thothy serve` as OpenAI's own client and a bare socket see it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from openai import OpenAI

from tests.support.answering_backend import AnsweringBackend
from tests.support.door import PATIENCE, door, served_door
from tests.support.queue_bench import eventually
from tests.support.served_engine import served
from thothy_ai.engine.api import Choice, FinishReason, GenerationRequest, TokenLogprob
from thothy_ai.engine.api.errors import (
    BudgetTooSmallError,
    EngineError,
    EngineNotAcceptingError,
    GrammarError,
    InvalidRequestError,
    NoFiniteScoreError,
    PromptTooLongError,
)
from thothy_ai.settings import Settings

HELLO = [{"role": "user", "content": "hello"}]
PIECES = ["Schö", "ne", " Grüße 🙂"]
TEXT = "".join(PIECES)
LIKELY = TokenLogprob(-0.5, (0, 1), (-0.5, -1e30))


@pytest.fixture(autouse=True)
def plain() -> None:
    """Nothing is left of the test before: each has a backend of its own."""


@pytest.fixture
def backend() -> AnsweringBackend:
    return AnsweringBackend(lambda request: PIECES)


@pytest.fixture
def address(backend: AnsweringBackend, tmp_path: Path) -> Iterator[str]:
    with door(backend, tmp_path) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0, _strict_response_validation=True) as client:
        yield client


def asked(backend: AnsweringBackend) -> GenerationRequest:
    return backend.requests[-1]


def post(address: str, path: str, body: Any, **options: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"} | options.pop("headers", {})
    return httpx.post(f"{address}/v1/{path}", content=content, headers=headers, timeout=PATIENCE, **options)


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "answering", "messages": HELLO, **fields}


class TestWhole:
    def test_a_chat_completion(self, client: OpenAI, backend: AnsweringBackend) -> None:
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

    def test_every_field_reaches_the_engine(self, client: OpenAI, backend: AnsweringBackend) -> None:
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
    def test_schemas_bind_whether_strict_or_not(
        self, address: str, backend: AnsweringBackend, wanted: Any, schema: Any
    ) -> None:
        assert post(address, "chat/completions", chat(response_format=wanted)).status_code == 200
        given = asked(backend).schema
        assert (given and json.loads(given)) == schema

    def test_what_the_engine_cannot_do_together_is_named(self, address: str) -> None:
        answer = post(address, "chat/completions", chat(response_format={"type": "json_object"}, stop="x"))
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stop")

    @pytest.mark.parametrize("stream", [False, True])
    def test_greedy_choices_are_written_once(self, address: str, backend: AnsweringBackend, stream: bool) -> None:
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

    def test_log_probabilities_name_tokens_and_their_bytes(self, client: OpenAI, backend: AnsweringBackend) -> None:
        backend.tokens, backend.logprobs = (b"Sch", b"\xc3", b"\xb6"), (LIKELY, None, LIKELY)
        answer = client.chat.completions.create(model="answering", messages=HELLO, logprobs=True, top_logprobs=2)
        assert answer.choices[0].logprobs is not None
        first, forced, half = answer.choices[0].logprobs.content or []
        assert (first.token, first.bytes, first.logprob) == ("Sch", [83, 99, 104], -0.5)
        assert [(each.token, each.logprob) for each in first.top_logprobs] == [("Sch", -0.5), ("\ufffd", -9999.0)]
        assert (forced.logprob, forced.top_logprobs, forced.bytes) == (0.0, [], [0xC3])
        assert (half.token, half.bytes) == ("\ufffd", [0xB6])
        assert asked(backend).sampling.logprobs == 2

    def test_completions_of_several_prompts(self, client: OpenAI, backend: AnsweringBackend) -> None:
        backend.answer = lambda request: [request.text or "tokens"]
        answer = client.completions.create(model="answering", prompt=["a", "b"], max_tokens=3)
        assert [(each.index, each.text) for each in answer.choices] == [(0, "a"), (1, "b")]
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 80
        assert {request.sampling.max_tokens for request in backend.requests} == {3}
        client.completions.create(model="answering", prompt=[1, 2])
        assert (asked(backend).token_ids, asked(backend).sampling.max_tokens) == ((1, 2), 16)

    def test_log_probabilities_of_a_completion(self, client: OpenAI, backend: AnsweringBackend) -> None:
        backend.tokens, backend.logprobs = (b"Sch", b"\xc3", b"\xb6"), (LIKELY, None, LIKELY)
        answer = client.completions.create(model="answering", prompt="a", logprobs=1)
        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.tokens == ["Sch", "\ufffd", "\ufffd"]
        assert logprobs.token_logprobs == [-0.5, 0.0, -0.5]
        assert logprobs.text_offset == [0, 3, 3]
        assert logprobs.top_logprobs == [{"Sch": -0.5}, {}, {"Sch": -0.5}]


def events(text: str) -> list[dict[str, Any]]:
    """The values of a stream that ends as it should."""
    lines = [line for line in text.split("\n\n") if line and not line.startswith(":")]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


class TestStreams:
    @pytest.mark.parametrize("usage", [None, False, True])
    def test_usage_comes_only_when_it_is_asked_for(self, address: str, usage: bool | None) -> None:
        options: dict[str, Any] = {} if usage is None else {"stream_options": {"include_usage": usage}}
        answer = post(address, "chat/completions", chat(stream=True, **options))
        assert answer.headers["content-type"].startswith("text/event-stream")
        seen = events(answer.text)
        if usage:
            last = seen.pop()
            assert (last["choices"], last["usage"]["total_tokens"]) == ([], 60)
            assert all(event["usage"] is None for event in seen)
        else:
            assert not any("usage" in event for event in seen)
        first, *middle, end = seen
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert "".join(event["choices"][0]["delta"]["content"] for event in middle) == TEXT
        assert all(event["choices"][0]["finish_reason"] is None for event in (first, *middle))
        assert (end["choices"][0]["delta"], end["choices"][0]["finish_reason"]) == ({}, "stop")
        assert len({event["id"] for event in seen}) == 1

    def test_the_client_assembles_it(self, client: OpenAI) -> None:
        with client.chat.completions.stream(model="answering", messages=HELLO) as stream:
            final = stream.get_final_completion()
        assert final.choices[0].message.content == TEXT

    def test_log_probabilities_come_with_their_text(self, client: OpenAI, backend: AnsweringBackend) -> None:
        backend.tokens, backend.logprobs = (b"a", b"b", b"c"), (LIKELY,) * 3
        stream = client.chat.completions.create(model="answering", messages=HELLO, logprobs=True, stream=True)
        listed = [chunk.choices[0] for chunk in stream if chunk.choices[0].logprobs]
        text = "".join(choice.delta.content or "" for choice in listed)
        tokens = [each.token for choice in listed if choice.logprobs for each in choice.logprobs.content or []]
        assert (text, tokens) == (TEXT, ["a", "b", "c"])

    def test_completions_of_several_prompts(self, address: str, backend: AnsweringBackend) -> None:
        backend.answer = lambda request: [*(request.text or "")]
        texts = {0: "", 1: ""}
        ends = []
        # The client's own type of a chunk has no null for a finish reason, which OpenAI sends.
        lenient = OpenAI(base_url=f"{address}/v1", api_key="any")
        for chunk in lenient.completions.create(model="answering", prompt=["abc", "def"], stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].text
            ends += [choice.index for choice in chunk.choices if choice.finish_reason == "stop"]
        assert (texts, ends) == ({0: "abc", 1: "def"}, [0, 1])
        lenient.close()

    def test_an_error_in_the_middle_is_an_event(self, client: OpenAI, backend: AnsweringBackend) -> None:
        backend.hang = True
        stream = client.chat.completions.create(model="answering", messages=HELLO, stream=True)
        assert next(stream).choices[0].delta.role == "assistant"
        threading.Timer(0.1, backend.fail_all, [NoFiniteScoreError("the scores are NaN")]).start()
        with pytest.raises(openai.APIError, match="the scores are NaN"):
            list(stream)
        backend.hang = False
        assert client.chat.completions.create(model="answering", messages=HELLO).choices[0].message.content == TEXT

    def test_a_client_that_leaves_ends_its_generation(self, address: str, backend: AnsweringBackend) -> None:
        backend.hang = True
        for stream in (True, False):
            backend.aborted.clear()
            with socket.create_connection((urlsplit(address).hostname, urlsplit(address).port)) as raw:
                body = json.dumps(chat(stream=stream)).encode()
                raw.sendall(
                    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                    + f"content-length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                eventually(lambda: len(backend.open) == 1)
            assert backend.aborted.wait(PATIENCE)
            eventually(lambda: not backend.open)

    def test_a_client_that_leaves_while_it_waits_gives_its_place_up(
        self, backend: AnsweringBackend, tmp_path: Path
    ) -> None:
        backend.hang = True
        with door(backend, tmp_path, share=0.25) as address, ThreadPoolExecutor() as pool:  # one place of four
            first = pool.submit(post, address, "chat/completions", chat())
            eventually(lambda: len(backend.open) == 1)
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{address}/v1/chat/completions", json=chat(), timeout=0.2)
            second = pool.submit(post, address, "chat/completions", chat())
            time.sleep(0.2)
            assert len(backend.requests) == 1
            backend.hang = False
            backend.finish_all("one")
            assert first.result().json()["choices"][0]["message"]["content"] == "one"
            assert second.result().status_code == 200
            assert len(backend.requests) == 2  # the one that gave up was never sent

    def test_places_are_those_of_sequences(self, backend: AnsweringBackend, tmp_path: Path) -> None:
        backend.hang = True
        with door(backend, tmp_path) as address, ThreadPoolExecutor() as pool:  # four places
            first = pool.submit(post, address, "chat/completions", chat(n=3, best_of=3))
            eventually(lambda: len(backend.open) == 1)
            second = pool.submit(post, address, "chat/completions", chat(n=2))
            time.sleep(0.2)
            assert len(backend.requests) == 1
            backend.finish_all("one")
            eventually(lambda: len(backend.requests) == 2)
            backend.finish_all("two")
            assert (first.result().status_code, second.result().status_code) == (200, 200)

    @pytest.mark.parametrize("stream", [False, True])
    def test_many_prompts_take_no_more_places_than_there_are(
        self, backend: AnsweringBackend, tmp_path: Path, stream: bool
    ) -> None:
        backend.hang = True
        body = {"model": "answering", "prompt": ["a", "b", "c"], "n": 2, "stream": stream}
        with door(backend, tmp_path) as address, ThreadPoolExecutor() as pool:  # four places
            asked = pool.submit(post, address, "completions", body)
            eventually(lambda: len(backend.open) == 2)
            assert len(backend.requests) == 2
            backend.finish_all("one")
            eventually(lambda: len(backend.open) == 1)
            backend.finish_all("two")
            said = asked.result()
            refused = post(address, "completions", {**body, "n": 5})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "n")
        lines = [json.loads(line[6:]) for line in said.text.splitlines() if line.startswith("data: {")]
        choices = [choice for part in (lines if stream else [said.json()]) for choice in part["choices"]]
        if stream:
            assert {0, 2, 4} <= {choice["index"] for choice in choices if choice["text"]}
            assert said.text.endswith("data: [DONE]\n\n")
        else:
            assert [choice["text"] for choice in choices] == ["one", "one", "two"]

    def test_a_refusal_after_a_comment_is_an_event(
        self, backend: AnsweringBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("thothy_ai.http.openai.texts.PING_SECONDS", 0.05)
        backend.hang = True
        with door(backend, tmp_path, share=0.25) as address, ThreadPoolExecutor() as pool:
            first = pool.submit(post, address, "chat/completions", chat())
            eventually(lambda: len(backend.open) == 1)
            body = chat(stream=True, min_tokens=9, max_tokens=3)
            with httpx.stream("POST", f"{address}/v1/chat/completions", json=body, timeout=PATIENCE) as second:
                lines = second.iter_lines()
                assert next(lines) == ": waiting"
                backend.finish_all("one")
                assert first.result().status_code == 200
                *_, refused, _ = lines
            assert '"param": "min_tokens"' in refused or '"param":"min_tokens"' in refused


ERRORS = [
    (PromptTooLongError("the prompt has 9 tokens"), 400, "context_length_exceeded", "messages"),
    (GrammarError("no"), 400, "invalid_json_schema", "response_format"),
    (BudgetTooSmallError("no", "max_tokens"), 400, "invalid_value", "max_completion_tokens"),
    (InvalidRequestError("min_tokens=9 is out of range", "min_tokens"), 400, "invalid_value", "min_tokens"),
    (EngineNotAcceptingError("it drains"), 503, "engine_unavailable", None),
    (NoFiniteScoreError("NaN"), 500, "no_finite_score", None),
]


class TestErrors:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(("error", "status", "code", "param"), ERRORS, ids=lambda each: type(each).__name__)
    def test_the_engine_s_own_have_their_status(
        self,
        address: str,
        backend: AnsweringBackend,
        error: EngineError,
        status: int,
        code: str,
        param: str | None,
        stream: bool,
    ) -> None:
        backend.answer = lambda request: error
        answer = post(address, "chat/completions", chat(stream=stream))
        said = answer.json()["error"]
        assert (answer.status_code, said["code"], said["param"]) == (status, code, param)
        assert said["message"] == str(error)
        assert ("retry-after" in answer.headers) == (status == 503)
        assert answer.headers["x-request-id"].startswith("req_")

    def test_unknown_models_and_routes(self, client: OpenAI, address: str) -> None:
        with pytest.raises(openai.NotFoundError) as unknown:
            client.chat.completions.create(model="gpt-5", messages=HELLO)
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.NotFoundError) as nowhere:
            client.embeddings.create(model="answering", input="x")
        assert nowhere.value.code == "unknown_url"
        slash = httpx.get(f"{address}/v1/models/", follow_redirects=False)
        assert (slash.status_code, "error" in slash.json()) == (404, True)
        answer = httpx.get(f"{address}/v1/chat/completions")
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
        assert answer.headers["x-request-id"].startswith("req_")

    def test_models(self, client: OpenAI) -> None:
        assert [model.id for model in client.models.list()] == ["answering"]
        assert client.models.retrieve("answering").object == "model"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("a/b")

    def test_without_an_engine(self, tmp_path: Path) -> None:
        with served_door(Settings(engine_url=f"unix://{tmp_path}/none.sock")) as address:
            answer = post(address, "chat/completions", chat())
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_unavailable")
            assert int(answer.headers["retry-after"]) > 0
            assert httpx.get(f"{address}/v1/models").json()["data"] == []

    def test_an_engine_that_comes_later_is_found(self, backend: AnsweringBackend, tmp_path: Path) -> None:
        with served_door(Settings(engine_url=f"unix://{tmp_path}/engine.sock")) as address:
            for _ in range(2):  # and found again after it was away
                with served(backend, f"unix://{tmp_path}/engine.sock"):
                    eventually(lambda: post(address, "chat/completions", chat()).status_code == 200)
                eventually(lambda: post(address, "chat/completions", chat()).status_code == 503)


@pytest.mark.parametrize("route", ["chat/completions", "completions", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_text_that_the_engine_gave_up_is_none(
    address: str, backend: AnsweringBackend, route: str, stream: bool
) -> None:
    backend.reason = FinishReason.ABORTED
    body = {"chat/completions": {"messages": HELLO}, "completions": {"prompt": "a"}, "responses": {"input": "a"}}
    answer = post(address, route, {"model": "answering", "stream": stream, **body[route]})
    assert answer.status_code == (200 if stream else 503)
    assert '"engine_unavailable"' in answer.text.rsplit("data: ", 1)[-1]
    assert "[DONE]" not in answer.text


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
    assert post(address, "chat/completions", chat(**dict.fromkeys(names))).status_code == 200
    assert asked(backend).sampling.temperature == 1.0


def test_bodies_and_headers_are_bounded(address: str) -> None:
    large = post(address, "chat/completions", chat(messages=[{"role": "user", "content": "x" * 17_000_000}]))
    assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
    connection.request("GET", "/v1/models", headers={"x-long": "x" * 100_000})
    answer = connection.getresponse()
    assert (answer.status, json.load(answer)["error"]["code"]) == (431, "headers_too_large")
    connection.close()


def test_the_bodies_of_all_requests_are_bounded(
    address: str, backend: AnsweringBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thothy_ai.http.asgi.MAX_HELD", 1_000)
    large = chat(messages=[{"role": "user", "content": "x" * 600}])
    backend.hang = True
    with ThreadPoolExecutor() as pool:
        first = pool.submit(post, address, "chat/completions", large)
        eventually(lambda: len(backend.open) == 1)
        busy = post(address, "chat/completions", large)
        assert (busy.status_code, busy.json()["error"]["code"]) == (503, "server_busy")
        assert "connection" not in busy.headers  # its body was read, and left
        backend.finish_all("one")
        assert first.result().status_code == 200
    backend.hang = False
    assert post(address, "chat/completions", large).status_code == 200


def test_slow_headers_end_the_connection(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.http.server.HEADER_SECONDS", 0.2)
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE) as raw:
        raw.sendall(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n")
        with suppress(ConnectionResetError):
            assert raw.recv(100) == b""


def test_a_slow_body_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.http.asgi.BODY_SECONDS", 0.2)
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE) as raw:
        raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
        raw.sendall(b"content-length: 100\r\n\r\n{")
        assert b"408" in raw.recv(1_000).split(b"\r\n")[0]
        raw.settimeout(PATIENCE)
        with suppress(ConnectionResetError):
            while raw.recv(1_000):  # it is closed
                pass


def test_other_content_types_are_refused(address: str, backend: AnsweringBackend) -> None:
    """A web page may post them without asking first."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = post(address, "chat/completions", chat(), headers={"content-type": kind})
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    zipped = post(address, "chat/completions", chat(), headers={"content-encoding": "gzip"})
    assert (zipped.status_code, zipped.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert not backend.requests
    with_charset = {"content-type": "application/json; charset=utf-8"}
    assert post(address, "chat/completions", chat(), headers=with_charset).is_success


def test_a_stream_that_waits_is_not_idle(
    address: str, backend: AnsweringBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thothy_ai.http.openai.texts.PING_SECONDS", 0.05)
    backend.hang, backend.answer = True, lambda request: []
    with httpx.stream("POST", f"{address}/v1/chat/completions", json=chat(stream=True), timeout=PATIENCE) as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": waiting"
        backend.finish_all("x")
        assert "data: [DONE]" in list(lines)
