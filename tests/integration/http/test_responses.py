"""`/v1/responses` as OpenAI's own client sees it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from tests.support.answering_backend import AnsweringBackend
from tests.support.patience import PATIENCE
from tests.support.tool_answers import CALLED, CALLS, CITY
from thothy_ai.engine.api import FinishReason, Message, TokenLogprob, ToolCall, ToolChoice
from thothy_ai.engine.api.errors import EngineLostError, GrammarError

PAGE = Path(__file__).parents[3] / "docs/openai.md"
TOOLS: list[Any] = [
    {"type": "function", "name": "weather", "description": "Of a city.", "parameters": CITY, "strict": True},
    {"type": "function", "name": "time", "parameters": None, "strict": None},
]


class City(BaseModel):
    """What an answer is read as."""

    city: str


def ask(client: OpenAI, **fields: Any) -> Response:
    response = client.responses.create(**{"model": "answering", "input": "hello"} | fields)
    assert isinstance(response, Response)
    return response


def events(client: OpenAI, **fields: Any) -> list[ResponseStreamEvent]:
    found = list(client.responses.create(**{"model": "answering", "input": "hello", "stream": True} | fields))
    assert [event.sequence_number for event in found] == [*range(len(found))]
    return found


def items(response: Response) -> list[tuple[Any, ...]]:
    """What a response thinks, says and calls."""
    found: list[tuple[Any, ...]] = []
    for item in response.output:
        match item.type:
            case "reasoning":
                found.append((item.type, item.status, "".join(part.text for part in item.content or ())))
            case "message":
                found.append(
                    (item.type, item.status, item.content[0].text if item.content[0].type != "refusal" else "")
                )
            case "function_call":
                found.append((item.type, item.status, item.name, item.arguments))
    return found


ALL = [
    ("reasoning", "completed", "I must look."),
    ("message", "completed", "Looking:"),
    *(("function_call", "completed", *call) for call in CALLS),
]


def test_a_response(client: OpenAI, backend: AnsweringBackend) -> None:
    response = ask(client, instructions="Be kind.", temperature=0.5, max_output_tokens=7, metadata={"a": "b"})
    assert (response.output_text, response.status, response.model) == ("Hello.", "completed", "answering")
    assert response.usage is not None
    usage = (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens)
    assert (*usage, response.usage.input_tokens_details.cached_tokens) == (40, 20, 60, 30)
    assert (response.temperature, response.top_p, response.tool_choice) == (0.5, 1, "auto")
    assert response.metadata == {"a": "b"}
    request = backend.requests[-1]
    assert request.messages == (Message("system", "Be kind."), Message("user", "hello"))
    assert (request.sampling.max_tokens, request.sampling.temperature, request.schema) == (7, 0.5, None)
    assert request.tools is None


def test_items_reach_the_engine_as_messages(client: OpenAI, backend: AnsweringBackend) -> None:
    """Also those that the API's own answers have."""
    backend.answer = lambda _: CALLED
    before = ask(client, tools=TOOLS)
    [_, _, first, second] = before.output
    assert (first.type, second.type) == ("function_call", "function_call")
    ask(
        client,
        tools=TOOLS,
        tool_choice={"type": "function", "name": "time"},
        parallel_tool_calls=False,
        input=[
            {"role": "developer", "content": "Be kind."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "How is Zürich?"}]},
            *before.output,
            {"type": "function_call_output", "call_id": second.call_id, "output": "noon"},
            {"type": "function_call_output", "call_id": first.call_id,
             "output": [{"type": "input_text", "text": "sunny"}]},
            {"role": "assistant", "content": "Sunny."},
            {"role": "user", "content": "Thanks."},
        ],
    )  # fmt: skip
    request = backend.requests[-1]
    calls = [ToolCall(*call, id_) for call, id_ in zip(CALLS, (first.call_id, second.call_id), strict=True)]
    assert request.messages == (
        Message("system", "Be kind."),
        Message("user", "How is Zürich?"),
        Message("assistant", "Looking:", tuple(calls), thoughts="I must look."),
        Message("tool", "noon", call_id=second.call_id),
        Message("tool", "sunny", call_id=first.call_id),
        Message("assistant", "Sunny."),
        Message("user", "Thanks."),
    )
    tools = request.tools
    assert tools is not None
    assert (tools.choice, tools.only, tools.parallel) == (ToolChoice.AUTO, "time", False)
    functions = [json.loads(each)["function"] for each in tools.definitions]
    assert functions[0] == {"name": "weather", "description": "Of a city.", "parameters": CITY, "strict": True}


def test_items_come_whole_and_in_events(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.answer = lambda _: CALLED
    whole = ask(client, tools=TOOLS, tool_choice="required")
    assert items(whole) == ALL
    assert whole.usage is not None
    assert whole.usage.output_tokens_details.reasoning_tokens == 7
    found = events(client, tools=TOOLS)
    assert [event.type for event in found[:2]] == ["response.created", "response.in_progress"]
    end = found[-1]
    assert end.type == "response.completed"
    assert items(end.response) == ALL
    growing: dict[str, str] = {}
    ended: dict[int, Any] = {}
    for event in found:
        match event.type:
            case "response.output_item.added":
                assert event.output_index == len(ended)  # an item begins after the one before has ended
                growing[event.item.id or ""] = ""
            case (
                "response.output_text.delta"
                | "response.reasoning_text.delta"
                | "response.function_call_arguments.delta"
            ):
                growing[event.item_id] += event.delta
            case "response.output_text.done" | "response.reasoning_text.done":
                assert growing[event.item_id] == event.text
            case "response.function_call_arguments.done":
                assert growing[event.item_id] == event.arguments
            case "response.output_item.done":
                ended[event.output_index] = event.item
    assert [*ended.values()] == end.response.output


def test_the_client_s_own_stream_understands_it(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.answer = lambda _: ['{"city":', ' "Bern"}']
    with client.responses.stream(model="answering", input="where?", text_format=City) as stream:
        assert stream.get_final_response().output_parsed == City(city="Bern")
    assert json.loads(backend.requests[-1].schema or "")["properties"].keys() == {"city"}


def test_a_response_that_is_cut_off_is_incomplete(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.reason = FinishReason.LENGTH
    response = ask(client)
    assert response.incomplete_details is not None
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert items(response) == [("message", "incomplete", "Hello.")]
    assert events(client)[-1].type == "response.incomplete"


def test_log_probabilities(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.answer, backend.tokens = lambda _: ["a", "b"], (b"a", b"b")
    backend.logprobs = (TokenLogprob(-0.5, (0, 1), (-0.5, -1.0)),) * 2
    try:
        for fields in ({"top_logprobs": 1}, {"include": ["message.output_text.logprobs"], "top_logprobs": 1}):
            [item] = ask(client, **fields).output
            assert item.type == "message"
            [part] = item.content
            assert part.type == "output_text"
            assert [each.token for each in part.logprobs or ()] == ["a", "b"]
            assert [each.top_logprobs[0].logprob for each in part.logprobs or ()] == [-0.5, -0.5]
        deltas = [event for event in events(client, top_logprobs=0) if event.type == "response.output_text.delta"]
        assert [each.token for event in deltas for each in event.logprobs] == ["a", "b"]
    finally:
        backend.logprobs, backend.tokens = (), ()


def test_an_error_in_a_stream_is_an_event(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.hang = True
    try:
        stream = client.responses.create(model="answering", input="hello", stream=True)
        found = []
        for event in stream:
            found.append(event)
            if event.type == "response.output_text.delta":
                backend.fail_all(EngineLostError("gone"))
        assert found[-1].type == "error"
        assert (found[-1].code, found[-1].message) == ("engine_unavailable", "gone")
    finally:
        backend.hang = False


def test_the_page_s_snippets_run(address: str, backend: AnsweringBackend, capsys: pytest.CaptureFixture[str]) -> None:
    backend.answer = lambda request: CALLED if request.tools else ["Crumb by crumb."]
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    for snippet in (each for each in snippets if "client.batches" not in each):
        exec(snippet.replace("http://127.0.0.1:8000", address), names)
    names["client"].close()
    calls = [f"{name} {arguments}" for name, arguments in CALLS]
    assert capsys.readouterr().out.splitlines() == ["Crumb by crumb.", *calls, "Crumb by crumb."]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": {"format": {"type": "json_schema", "name": "\ud800", "schema": {}}}}, "text.format.name"),
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "auto"}, "truncation"),
        ({"n": 2}, "n"),
        ({"max_tokens": 2}, "max_tokens"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"include": ["file_search_call.results"]}, "include.0"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0.content"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input.0.call_id"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
        ({"tools": [{"type": "web_search_preview"}]}, "tools.0.type"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools.1.name"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ],
)
def test_bad_input_is_named(address: str, fields: dict[str, Any], param: str) -> None:
    body = {"model": "answering", "input": "hello", **fields}
    headers = {"content-type": "application/json"}
    content = json.dumps(body).encode()  # with escapes
    answer = httpx.post(f"{address}/v1/responses", content=content, headers=headers, timeout=PATIENCE)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_a_schema_that_does_not_compile_is_named(client: OpenAI, backend: AnsweringBackend) -> None:
    for field, param in (("tools.1.function.parameters", "tools.1.parameters"), ("", "text.format.schema")):
        backend.answer = lambda _, field=field: GrammarError(f"{field}: not", field)
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, tools=TOOLS)
        assert caught.value.param == param
        assert f"{param if field else ''}: not" in str(caught.value)
