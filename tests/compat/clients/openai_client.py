"""The openai client, with strict validation of everything that it gets."""

from __future__ import annotations

import json
import os
import time

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

MODEL = os.environ["COMPAT_MODEL"]
HELLO = [{"role": "user", "content": "Say hello to Anna."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class City(BaseModel):
    name: str
    inhabitants: int


@pytest.fixture(scope="module")
def client() -> OpenAI:
    return OpenAI(max_retries=0, timeout=120, _strict_response_validation=True)


def test_models(client: OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert MODEL in names
    assert client.models.retrieve(MODEL).id == MODEL


def test_chat_whole_and_streamed(client: OpenAI) -> None:
    options = {"model": MODEL, "messages": HELLO, "max_completion_tokens": 20, "seed": -3, "temperature": 0.5}
    whole = client.chat.completions.create(**options)
    assert whole.choices[0].message.content
    assert whole.usage is not None
    assert whole.usage.completion_tokens <= 20
    stream = client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
    *chunks, last = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content, "the same seed"
    assert last.choices == []
    assert last.usage.completion_tokens == whole.usage.completion_tokens


def test_several_choices_with_logprobs(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=HELLO, n=3, logprobs=True, top_logprobs=2, max_completion_tokens=8, seed=1
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert all(len(token.top_logprobs) == 2 for token in logprobs.content or ())


def test_parse(client: OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=HELLO, response_format=City, max_completion_tokens=200, temperature=0
    )
    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(answer.choices[0].message.parsed, City)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_tool_is_called_whole_and_streamed(client: OpenAI, choice: object) -> None:
    options = {"model": MODEL, "messages": HELLO, "tools": [WEATHER], "tool_choice": choice,
               "max_completion_tokens": 100, "temperature": 0}  # fmt: skip
    call = client.chat.completions.create(**options).choices[0].message.tool_calls[0]
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in {"Oslo", "Rome"}
    with client.chat.completions.stream(**options) as stream:
        final = stream.get_final_completion()
    streamed = final.choices[0].message.tool_calls[0]
    assert (streamed.function.name, streamed.function.arguments) == (call.function.name, call.function.arguments)
    again = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
             {"role": "tool", "tool_call_id": call.id, "content": "rain"}]  # fmt: skip
    assert client.chat.completions.create(model=MODEL, messages=again, max_completion_tokens=10).choices


def test_completions(client: OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=["One, two,", "A, B,"], max_tokens=5, echo=False, logprobs=1)
    assert [choice.index for choice in answer.choices] == [0, 1]
    # In a stream, OpenAI itself sends a finish_reason of null, which its document does not allow.
    lenient = OpenAI(max_retries=0, timeout=120)
    pieces = lenient.completions.create(model=MODEL, prompt="One, two,", max_tokens=5, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices)


def test_responses_whole_and_streamed(client: OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input="Say hello.", max_output_tokens=20, store=False)
    assert answer.output_text
    kinds = [event.type for event in client.responses.create(
        model=MODEL, input="Say hello.", max_output_tokens=20, store=False, stream=True)]  # fmt: skip
    assert kinds[0] == "response.created"
    assert kinds[-1] in {"response.completed", "response.incomplete"}


def test_files_and_batches(client: OpenAI) -> None:
    lines = [
        {"custom_id": f"line {number}", "method": "POST", "url": "/v1/chat/completions",
         "body": {"model": MODEL, "messages": HELLO, "max_completion_tokens": 5}}
        for number in range(3)
    ]  # fmt: skip
    content = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("lines.jsonl", content), purpose="batch")
    assert client.files.content(file.id).read() == content
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    until = time.monotonic() + 120
    while batch.status not in {"completed", "failed", "expired"} and time.monotonic() < until:
        time.sleep(0.2)
        batch = client.batches.retrieve(batch.id)
    assert (batch.status, batch.request_counts.completed) == ("completed", 3)
    output = client.files.content(batch.output_file_id).text.splitlines()
    assert {json.loads(line)["custom_id"] for line in output} == {"line 0", "line 1", "line 2"}
    assert client.files.delete(file.id).deleted
    assert batch.id in [each.id for each in client.batches.list(limit=5)]


@pytest.mark.parametrize(
    ("change", "error", "param"),
    [
        ({"model": "none"}, openai.NotFoundError, "model"),
        ({"temperature": 9}, openai.BadRequestError, "temperature"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, openai.BadRequestError, "messages"),
        ({"extra_body": {"no_such_field": 1}}, openai.BadRequestError, "no_such_field"),
    ],
)
def test_errors_name_the_field(client: OpenAI, change: dict, error: type[Exception], param: str) -> None:
    with pytest.raises(error) as raised:
        client.chat.completions.create(**{"model": MODEL, "messages": HELLO, **change})
    assert raised.value.param.startswith(param)
    assert isinstance(raised.value.code, str)
    assert raised.value.request_id


def test_the_asynchronous_client() -> None:
    import asyncio

    async def body() -> None:
        async with AsyncOpenAI(max_retries=0, timeout=120, _strict_response_validation=True) as client:
            stream = await client.chat.completions.create(
                model=MODEL, messages=HELLO, max_completion_tokens=10, stream=True
            )
            assert [chunk async for chunk in stream]

    asyncio.run(body())
