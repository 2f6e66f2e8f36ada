"""Errors of the engine, of models and of routes, as OpenAI's clients read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.support.answering_backend import AnsweringBackend
from tests.support.door import served_door
from tests.support.openai_requests import HELLO, chat, post
from tests.support.queue_bench import eventually
from tests.support.served_engine import served
from thothy_ai.engine.api import FinishReason
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

ERRORS = [
    (PromptTooLongError("the prompt has 9 tokens"), 400, "context_length_exceeded", "messages"),
    (GrammarError("no"), 400, "invalid_json_schema", "response_format"),
    (BudgetTooSmallError("no", "max_tokens"), 400, "invalid_value", "max_completion_tokens"),
    (InvalidRequestError("min_tokens=9 is out of range", "min_tokens"), 400, "invalid_value", "min_tokens"),
    (EngineNotAcceptingError("it drains"), 503, "engine_unavailable", None),
    (NoFiniteScoreError("NaN"), 500, "no_finite_score", None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "code", "param"), ERRORS, ids=lambda each: type(each).__name__)
def test_the_engine_s_own_have_their_status(
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


@pytest.mark.parametrize(
    ("route", "given", "param"),
    [
        ("chat/completions", {"messages": HELLO, "max_tokens": 3}, "max_tokens"),
        ("chat/completions", {"messages": HELLO, "max_tokens": 9, "max_completion_tokens": 3}, "max_completion_tokens"),
        ("completions", {"prompt": "x", "max_completion_tokens": 3}, "max_completion_tokens"),
        ("completions", {"prompt": "x"}, "max_tokens"),
        ("responses", {"input": "x", "max_output_tokens": 3}, "max_output_tokens"),
    ],
)
def test_a_limit_has_the_name_that_the_request_gave_it(
    address: str, backend: AnsweringBackend, route: str, given: dict[str, Any], param: str
) -> None:
    backend.answer = lambda request: BudgetTooSmallError("max_tokens: 3 is too few", "max_tokens")
    said = post(address, route, {"model": "answering", **given}).json()["error"]
    assert (said["param"], said["message"]) == (param, f"{param}: 3 is too few")


def test_unknown_models_and_routes(client: OpenAI, address: str) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-5", messages=HELLO)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError) as nowhere:
        client.embeddings.create(model="answering", input="x")
    assert nowhere.value.code == "unknown_url"
    slash = httpx.get(f"{address}/v1/models/", follow_redirects=False)
    assert (slash.status_code, "error" in slash.json()) == (404, True)
    with pytest.raises(openai.NotFoundError) as stored:  # none are
        client.chat.completions.list()
    assert stored.value.code == "unknown_url"
    answer = httpx.delete(f"{address}/v1/models")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert answer.headers["x-request-id"].startswith("req_")


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["answering"]
    assert client.models.retrieve("answering").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("a/b")


def test_without_an_engine(tmp_path: Path) -> None:
    with served_door(Settings(engine_url=f"unix://{tmp_path}/none.sock")) as address:
        answer = post(address, "chat/completions", chat())
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_unavailable")
        assert int(answer.headers["retry-after"]) > 0
        assert httpx.get(f"{address}/v1/models").json()["data"] == []


def test_an_engine_that_comes_later_is_found(backend: AnsweringBackend, tmp_path: Path) -> None:
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
