"""Jobs whose request is a body of OpenAI's API: the engine is asked as by the door, and the artifact is its answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.answering_backend import AnsweringBackend
from tests.support.local_client import LocalEngineClient
from thothy_ai.engine.api import TokenLogprob
from thothy_ai.engine.api.errors import PromptTooLongError
from thothy_ai.http.errors import ApiError
from thothy_ai.http.openai.translation import translated
from thothy_ai.jobs.api.plan import ApiBody
from thothy_ai.plans.advance import Judgement, PlannedJob
from thothy_ai.plans.follow import CallLog, follow
from thothy_ai.plans.requests import RequestFactory, Translated

HELLO = {"messages": [{"role": "user", "content": "hello"}]}
REQUESTS = RequestFactory("key", "chat", 7, "tenant", priority=3, booked=True)


def followed(backend: AnsweringBackend, kind: str, body: dict[str, Any]) -> Judgement:
    async def run() -> Judgement:
        client = LocalEngineClient(backend)
        await client.start()

        async def translate(call: ApiBody, tenant: str) -> Translated:
            return await translated(call, tenant, backend.info(), client.vocabulary)

        return await follow(PlannedJob(kind, body), REQUESTS, client.submit, CallLog(), translate=translate)

    return asyncio.run(run())


def test_the_engine_is_asked_in_the_job_s_name_and_the_artifact_is_the_answer() -> None:
    backend = AnsweringBackend(lambda _: ["Hello", "!"])
    judgement = followed(backend, "chat", HELLO | {"max_completion_tokens": 9, "logit_bias": {"5": -100}})
    (request,) = backend.requests
    assert (request.id, request.profile, request.salt) == ("key.0", "chat/write", "tenant")
    assert (request.priority, request.booked, request.stream) == (3, True, False)
    assert (request.sampling.max_tokens, request.sampling.temperature, request.sampling.seed) == (9, 1.0, 7)
    assert judgement.accepted
    assert judgement.body is not None
    assert judgement.body["model"] == "answering"
    assert judgement.body["choices"][0]["message"] == {"role": "assistant", "content": "Hello!", "refusal": None}
    assert judgement.body["usage"]["total_tokens"] == 60


def test_prompts_are_calls_whose_choices_follow_each_other() -> None:
    backend = AnsweringBackend(lambda request: [f" after {request.text or request.token_ids}"])
    judgement = followed(backend, "completion", {"prompt": ["one", "two"], "seed": -1})
    assert [request.sampling.seed for request in backend.requests] == [2**63 - 1] * 2
    assert judgement.body is not None
    assert [(each["index"], each["text"]) for each in judgement.body["choices"]] == [
        (0, " after one"),
        (1, " after two"),
    ]
    assert judgement.body["usage"]["completion_tokens"] == 40
    assert judgement.body["usage"]["prompt_tokens_details"] == {"cached_tokens": 60}


def test_log_probabilities_are_spelled_with_the_engine_s_vocabulary() -> None:
    backend = AnsweringBackend(lambda _: ["a"])
    backend.tokens = (b"a",)
    backend.logprobs = (TokenLogprob(-0.5, (0,), (-0.5,)),)
    judgement = followed(backend, "chat", HELLO | {"logprobs": True, "top_logprobs": 1})
    assert judgement.body is not None
    (token,) = judgement.body["choices"][0]["logprobs"]["content"]
    assert (token["token"], token["logprob"], token["top_logprobs"][0]["bytes"]) == ("a", -0.5, [97])


@pytest.mark.parametrize(
    ("kind", "body", "param"),
    [
        ("chat", HELLO | {"temperature": 3}, "temperature"),
        ("chat", HELLO | {"stream": True}, "stream"),
        ("chat", HELLO | {"priority": 9}, "priority"),
        ("chat", HELLO | {"colour": "red"}, "colour"),
        ("completion", {"prompt": []}, "prompt"),
        ("completion", {"prompt": ["x"] * 65}, "prompt.0"),
        ("completion", {"prompt": ["x", ""]}, "prompt"),
    ],
)
def test_what_the_api_refuses_is_refused_by_name(kind: str, body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        followed(AnsweringBackend(lambda _: ["x"]), kind, body)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_the_engine_s_refusal_is_the_api_s() -> None:
    with pytest.raises(ApiError) as refused:
        followed(AnsweringBackend(lambda _: PromptTooLongError("too long")), "chat", HELLO)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "messages")
