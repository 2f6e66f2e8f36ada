"""Tools, calls and thoughts over HTTP, as OpenAI's own client sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.support.answering_backend import AnsweringBackend
from tests.support.door import door, strict_client
from tests.support.patience import PATIENCE
from tests.support.tool_answers import CALLED, CALLS, CITY, HELLO, TOOLS
from thothy_ai.engine.api import Delta, FinishReason, GenerationRequest, Message, ToolCall, ToolChoice
from thothy_ai.engine.api.errors import EngineError, GrammarError, InvalidRequestError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.process.remote_engine import start_remote

RECORDED = [
    json.loads(line) for line in (Path(__file__).parent / "client_requests.jsonl").read_text("utf-8").splitlines()
]
NAMED = {"type": "function", "function": {"name": "time"}}


def ask(client: OpenAI, **fields: Any) -> ChatCompletion:
    answer = client.chat.completions.create(**{"model": "answering", "messages": HELLO} | fields)
    assert isinstance(answer, ChatCompletion)
    return answer


def chunks(client: OpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    return list(client.chat.completions.create(**{"model": "answering", "messages": HELLO, "stream": True} | fields))


def gathered(stream: list[ChatCompletionChunk]) -> tuple[str, str, list[tuple[str, str]], str | None]:
    """What is said, thought and called, and the finish reason. Each call begins with its id, type and name."""
    said, thoughts, calls, ids, reason = "", "", list[list[str]](), set[str](), None
    for chunk in stream:
        for choice in chunk.choices:
            said += choice.delta.content or ""
            thoughts += (choice.delta.model_extra or {}).get("reasoning_content", "")
            reason = choice.finish_reason or reason
            for call in choice.delta.tool_calls or ():
                assert call.function is not None
                if call.index == len(calls):
                    assert (call.type, bool(call.id)) == ("function", True)
                    ids.add(str(call.id))
                    calls.append([str(call.function.name), ""])
                else:
                    assert (call.type, call.id, call.function.name) == (None, None, None)
                calls[call.index][1] += call.function.arguments or ""
    assert len(ids) == len(calls)
    return said, thoughts, [(name, arguments) for name, arguments in calls], reason


def test_messages_and_tools_reach_the_engine(client: OpenAI, backend: AnsweringBackend) -> None:
    messages = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "How is Zürich?"}], "name": "ada"},
        {"role": "assistant", "content": None, "reasoning_content": "Look.", "refusal": None, "annotations": [],
         "audio": None, "function_call": None,
         "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":1}'}},
                        {"id": "c2", "type": "function", "function": {"name": "time", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "noon"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny", "name": "weather"},
        {"role": "assistant", "content": "Sunny.", "tool_calls": []},
        {"role": "user", "content": "Thanks."},
    ]  # fmt: skip
    ask(client, messages=messages, tools=TOOLS, tool_choice="auto", parallel_tool_calls=False)
    request = backend.requests[-1]
    assert request.messages == (
        Message("system", "Be kind."),
        Message("user", "How is Zürich?", name="ada"),
        Message("assistant", "", (ToolCall("weather", '{"city":1}', "c1"), ToolCall("time", "{}", "c2")),
                thoughts="Look."),
        Message("tool", "noon", call_id="c2"),
        Message("tool", "sunny", call_id="c1", name="weather"),
        Message("assistant", "Sunny."),
        Message("user", "Thanks."),
    )  # fmt: skip
    assert request.tools is not None
    assert [json.loads(each) for each in request.tools.definitions] == TOOLS
    assert (request.tools.choice, request.tools.only, request.tools.parallel) == (ToolChoice.AUTO, "", False)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, (ToolChoice.AUTO, "")),
        ("none", (ToolChoice.NONE, "")),
        ("required", (ToolChoice.REQUIRED, "")),
        (NAMED, (ToolChoice.AUTO, "time")),
    ],
)
def test_a_choice_of_tools_reaches_the_engine(
    client: OpenAI, backend: AnsweringBackend, choice: Any, expected: tuple[ToolChoice, str]
) -> None:
    ask(client, tools=TOOLS, tool_choice=choice)
    tools = backend.requests[-1].tools
    assert tools is not None
    assert (tools.choice, tools.only, tools.parallel) == (*expected, True)


@pytest.mark.parametrize("tools", [None, []])
def test_a_choice_without_tools_says_nothing(client: OpenAI, backend: AnsweringBackend, tools: Any) -> None:
    """LlamaIndex sends it."""
    for choice in ("required", "auto", "none"):
        ask(client, tools=tools, tool_choice=choice)
        assert backend.requests[-1].tools is None


@pytest.mark.parametrize(
    ("choice", "reason"), [("auto", "tool_calls"), ("required", "tool_calls"), (NAMED, "stop"), (None, "tool_calls")]
)
def test_calls_come_as_deltas_and_as_a_whole(
    client: OpenAI, backend: AnsweringBackend, choice: Any, reason: str
) -> None:
    backend.answer = lambda _: CALLED
    whole = ask(client, tools=TOOLS, tool_choice=choice)
    [answer] = whole.choices
    assert answer.finish_reason == reason
    message = answer.message
    calls = [
        (call.function.name, call.function.arguments) for call in message.tool_calls or () if call.type == "function"
    ]
    assert (message.content, calls) == ("Looking:", CALLS)
    assert (message.model_extra or {})["reasoning_content"] == "I must look."
    assert whole.usage is not None
    assert whole.usage.completion_tokens_details is not None
    assert whole.usage.completion_tokens_details.reasoning_tokens == 7
    stream = chunks(client, tools=TOOLS, tool_choice=choice)
    assert gathered(stream) == ("Looking:", "I must look.", CALLS, reason)
    assert stream[0].choices[0].delta.role == "assistant"


def test_an_answer_of_calls_alone_has_no_content(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.answer = lambda _: CALLED[-3:]
    answer = ask(client, tools=TOOLS)
    assert answer.choices[0].message.content is None
    backend.answer = lambda _: ["Hello."]
    [choice] = ask(client, tools=TOOLS).choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("Hello.", None, "stop")
    assert "reasoning_content" not in (choice.message.model_extra or {})


def test_calls_that_are_cut_off_end_with_length(client: OpenAI, backend: AnsweringBackend) -> None:
    backend.answer, backend.reason = lambda _: CALLED[:5], FinishReason.LENGTH
    [choice] = ask(client, tools=TOOLS, tool_choice="required").choices
    assert choice.finish_reason == "length"
    assert gathered(chunks(client, tools=TOOLS))[2:] == ([("weather", '{"city"')], "length")


def test_choices_have_calls_of_their_own(client: OpenAI, backend: AnsweringBackend) -> None:
    """Greedy choices are one text."""
    backend.answer = lambda _: CALLED[-3:]
    answer = ask(client, tools=TOOLS, n=2, temperature=0)
    ids = {call.id for choice in answer.choices for call in choice.message.tool_calls or ()}
    assert len(ids) == 4
    stream = chunks(client, tools=TOOLS, n=2, temperature=0)
    for index in range(2):
        own = [chunk for chunk in stream if chunk.choices[0].index == index]
        assert gathered(own)[2:] == (CALLS, "tool_calls")


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **function}}


def answered(call_id: str | None) -> list[dict[str, Any]]:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    told = {"role": "tool", "content": "r"} | ({} if call_id is None else {"tool_call_id": call_id})
    return [*HELLO, {"role": "assistant", "content": None, "tool_calls": calls}, told]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": answered("c2")}, "messages.2.tool_call_id"),
        ({"messages": answered(None)}, "messages.2.tool_call_id"),
        ({"messages": [*answered("c1")[::-1]]}, "messages.0.tool_call_id"),
        ({"messages": [{"role": "user", "content": "a", "tool_call_id": "c"}]}, "messages.0.tool_call_id"),
        ({"messages": [{**answered("c1")[1], "role": "user"}]}, "messages.0.tool_calls"),
        ({"messages": [{"role": "user", "content": "a", "reasoning_content": "b"}]}, "messages.0.reasoning_content"),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages.0.content"),
        ({"messages": [{"role": "function", "content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "messages.0.tool_calls.0.type"),
        ({"tools": [tool(), TOOLS[0], tool()]}, "tools.2.function.name"),
        ({"tools": [tool(name="a b")]}, "tools.0.function.name"),
        ({"tools": [tool(name="")]}, "tools.0.function.name"),
        ({"tools": [tool(parameters=[])]}, "tools.0.function.parameters"),
        ({"tools": [tool(color="red")]}, "tools.0.function.color"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"tools": [tool(name=f"f{number}") for number in range(129)]}, "tools"),
        ({"tools": [tool(description="a" * 300_000)]}, "tools"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tool_choice": NAMED}, "tool_choice"),
        ({"functions": []}, "functions"),
    ],
)
def test_bad_input_is_named(address: str, backend: AnsweringBackend, fields: dict[str, Any], param: str) -> None:
    before = len(backend.requests)
    body = {"model": "answering", "messages": HELLO, **fields}
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=PATIENCE)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert len(backend.requests) == before


@pytest.mark.parametrize(
    ("error", "code", "param"),
    [
        (GrammarError("tools.1.function.parameters: not: unsupported", "tools.1.function.parameters"),
         "invalid_json_schema", "tools.1.function.parameters"),
        (GrammarError("#/properties/a: not"), "invalid_json_schema", "response_format"),
        (InvalidRequestError("expected an object", "messages.1.tool_calls.0.function.arguments"), "invalid_value",
         "messages.1.tool_calls.0.function.arguments"),
        (InvalidRequestError("2 template options", "template_options"), "invalid_value", "chat_template_kwargs"),
        (InvalidRequestError("a request with id 'a' is in flight"), "invalid_value", None),
    ],
)  # fmt: skip
def test_what_the_engine_refuses_is_named(
    address: str, backend: AnsweringBackend, error: EngineError, code: str, param: str | None
) -> None:
    backend.answer = lambda _: error
    body = {"model": "answering", "messages": HELLO, "tools": TOOLS}
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=PATIENCE)
    said = answer.json()["error"]
    assert (answer.status_code, said["code"], said["param"]) == (400, code, param)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: each["client"])
def test_what_clients_send_is_answered(address: str, backend: AnsweringBackend, recorded: dict[str, Any]) -> None:
    def answer(request: GenerationRequest) -> list[str | Delta]:
        return CALLED if request.tools is not None else ["{}"]

    backend.answer = answer
    body = recorded["body"] | {"model": "answering"}
    response = httpx.post(f"{address}{recorded['route']}", json=body, timeout=PATIENCE)
    assert response.status_code == 200, response.text
    if body.get("stream"):
        assert response.text.endswith("data: [DONE]\n\n")
    else:
        assert response.json().get("choices") or response.json()["output"]


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """SmolLM2, whose template knows no tools."""
    running = start_remote(EngineOptions("unix:///unused", bundled_model_path(), device="cpu", kv_tokens=8192))
    with door(running.backend, tmp_path_factory.mktemp("bundled")) as address, strict_client(address) as client:
        yield client
    running.backend.stop()
    running.wait_ended()
    running.close()


@pytest.fixture(scope="module")
def asked(bundled: OpenAI) -> dict[str, Any]:
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    return {"model": next(iter(bundled.models.list())).id, "messages": question, "tools": TOOLS, "temperature": 0}


@pytest.mark.parametrize(("choice", "names"), [("required", {"weather", "time"}), (NAMED, {"time"})])
def test_calls_that_must_be_made(bundled: OpenAI, asked: dict[str, Any], choice: Any, names: set[str]) -> None:
    fields = asked | {"tool_choice": choice, "parallel_tool_calls": False, "max_completion_tokens": 200}
    [answer] = ask(bundled, **fields).choices
    [call] = answer.message.tool_calls or ()
    assert call.type == "function"
    assert call.function.name in names
    arguments = json.loads(call.function.arguments)
    assert arguments.keys() == {"city" if call.function.name == "weather" else "zone"}
    said, _, calls, reason = gathered(chunks(bundled, **fields))
    assert (said, calls, reason) == ("", [(call.function.name, call.function.arguments)], answer.finish_reason)


def test_a_call_that_must_be_made_is_not_cut_off(bundled: OpenAI, asked: dict[str, Any]) -> None:
    long = {"type": "object", "properties": {"story": {"type": "string"}}, "required": ["story"]}
    fields = asked | {"tools": [tool(name="tell", parameters=long)], "tool_choice": "required"}
    [answer] = ask(bundled, **fields, max_completion_tokens=60).choices
    assert answer.finish_reason == "tool_calls"
    functions = [call.function for call in answer.message.tool_calls or () if call.type == "function"]
    assert functions
    assert all(json.loads(each.arguments).keys() == {"story"} for each in functions)
    with pytest.raises(openai.BadRequestError, match="shortest answer") as caught:
        ask(bundled, **fields, max_completion_tokens=5)
    assert caught.value.param == "max_completion_tokens"


def test_an_answer_is_streamed_as_it_comes(bundled: OpenAI, asked: dict[str, Any]) -> None:
    stream = chunks(bundled, **asked, max_completion_tokens=12)
    said, _, calls, _ = gathered(stream)
    assert said
    assert not calls
    assert len(stream) > 5


def test_a_schema_goes_with_tools(bundled: OpenAI, asked: dict[str, Any]) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "p", "schema": CITY}}
    [answer] = ask(bundled, **asked, response_format=wanted, max_completion_tokens=100).choices
    calls = [call.function.arguments for call in answer.message.tool_calls or () if call.type == "function"]
    assert json.loads(answer.message.content or calls[0])


def test_what_a_tool_said_is_read(bundled: OpenAI, asked: dict[str, Any]) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    told = [{"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]  # fmt: skip
    fields = asked | {"messages": [*asked["messages"], *told], "tool_choice": "none", "max_completion_tokens": 30}
    assert ask(bundled, **fields).choices[0].message.content


def test_a_schema_that_does_not_compile_is_named(bundled: OpenAI, asked: dict[str, Any]) -> None:
    bad = tool(parameters={"type": "object", "properties": {"a": {"not": {}}}})
    body = asked | {"tools": [*TOOLS, bad]}
    answer = httpx.post(f"{bundled.base_url}chat/completions", json=body, timeout=PATIENCE)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "tools.2.function.parameters")
    assert "not" in error["message"]
