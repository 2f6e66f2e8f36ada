"""Streamed answers of chat and of completions."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from openai import OpenAI

from tests.support.answering_backend import AnsweringBackend
from tests.support.door import door
from tests.support.openai_requests import HELLO, LIKELY, TEXT, chat, events, post
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from thothy_ai.engine.api.errors import (
    NoFiniteScoreError,
)
from thothy_ai.http.engines import Fleet


@pytest.mark.parametrize("usage", [None, False, True])
def test_usage_comes_only_when_it_is_asked_for(address: str, usage: bool | None) -> None:
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
    assert len({(event["id"], event["created"], event["system_fingerprint"]) for event in seen}) == 1


def test_the_client_assembles_it(client: OpenAI) -> None:
    with client.chat.completions.stream(model="answering", messages=HELLO) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == TEXT


def test_log_probabilities_come_with_their_text(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.tokens, backend.logprobs = (b"a", b"b", b"c"), (LIKELY,) * 3
    stream = client.chat.completions.create(model="answering", messages=HELLO, logprobs=True, stream=True)
    listed = [chunk.choices[0] for chunk in stream if chunk.choices[0].logprobs]
    text = "".join(choice.delta.content or "" for choice in listed)
    tokens = [each.token for choice in listed if choice.logprobs for each in choice.logprobs.content or []]
    assert (text, tokens) == (TEXT, ["a", "b", "c"])


def test_completions_of_several_prompts(address: str, backend: AnsweringBackend) -> None:
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


def test_an_error_in_the_middle_is_an_event(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.hang = True
    stream = client.chat.completions.create(model="answering", messages=HELLO, stream=True)
    assert next(stream).choices[0].delta.role == "assistant"
    eventually(lambda: backend.open)
    backend.fail_all(NoFiniteScoreError("the scores are NaN"))
    with pytest.raises(openai.APIError, match="the scores are NaN"):
        list(stream)
    backend.hang = False
    assert client.chat.completions.create(model="answering", messages=HELLO).choices[0].message.content == TEXT


def test_a_client_that_leaves_ends_its_generation(address: str, backend: AnsweringBackend) -> None:
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
    backend: AnsweringBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []
    admit = Fleet._admit

    def counted(fleet: Fleet) -> None:
        admit(fleet)
        waiting.append(len(fleet._queue))

    monkeypatch.setattr(Fleet, "_admit", counted)
    backend.hang = True
    with door(backend, tmp_path, share=0.25) as address, ThreadPoolExecutor() as pool:  # one place of four
        first = pool.submit(post, address, "chat/completions", chat())
        eventually(lambda: len(backend.open) == 1)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{address}/v1/chat/completions", json=chat(), timeout=httpx.Timeout(PATIENCE, read=0.2))
        eventually(lambda: 1 in waiting and waiting[-1] == 0)  # it came, and it left
        second = pool.submit(post, address, "chat/completions", chat())
        eventually(lambda: waiting[-1] == 1)
        assert len(backend.requests) == 1
        backend.hang = False
        backend.finish_all("one")
        assert first.result().json()["choices"][0]["message"]["content"] == "one"
        assert second.result().status_code == 200
        assert len(backend.requests) == 2  # the one that gave up was never sent


def test_places_are_those_of_sequences(backend: AnsweringBackend, tmp_path: Path) -> None:
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
    backend: AnsweringBackend, tmp_path: Path, stream: bool
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
    backend: AnsweringBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_a_stream_that_waits_is_not_idle(
    address: str, backend: AnsweringBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thothy_ai.http.openai.texts.PING_SECONDS", 0.05)
    backend.hang, backend.answer = True, lambda request: []
    with httpx.stream("POST", f"{address}/v1/chat/completions", json=chat(stream=True), timeout=PATIENCE) as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": waiting"
        eventually(lambda: backend.open)
        backend.finish_all("x")
        assert "data: [DONE]" in list(lines)
