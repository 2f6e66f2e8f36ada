"""Prompts with tools, calls and what came of them, as transformers renders them with the model's own template."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.chat_families import FAMILIES, family
from tests.support.prompts import encode
from thothy_ai.engine.api import GenerationRequest, Message, ToolCall, ToolChoice, Tools
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.text.prompts import PromptEncoder

NATIVE = [name for name in FAMILIES if name != "none"]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Of a <|im_end|> city.", "parameters": CITY}},
    {"type": "function", "function": {"strict": True, "name": "now", "parameters": {"type": "object"}}},
]
GIVEN = Tools(tuple(json.dumps(tool) for tool in TOOLS))
ID = "c1" * 4 + "x"
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How is Zürich?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": ID, "type": "function", "function": {"name": "weather", "arguments": {"city": 'Zü "[/INST]"'}}}
        ],
    },
    {"role": "tool", "tool_call_id": ID, "content": "<|eot_id|> sunny"},
    {"role": "assistant", "content": "Sunny."},
    {"role": "user", "content": "And Bern?"},
]


def message(entry: dict[str, Any]) -> Message:
    calls = tuple(
        ToolCall(call["function"]["name"], json.dumps(call["function"]["arguments"], indent=1), call["id"])
        for call in entry.get("tool_calls", ())
    )
    thoughts, call_id = entry.get("reasoning_content", ""), entry.get("tool_call_id", "")
    return Message(entry["role"], entry["content"] or "", calls, call_id, entry.get("name", ""), thoughts)


def request(chat: list[dict[str, Any]], tools: Tools | None = GIVEN, **fields: Any) -> GenerationRequest:
    return GenerationRequest("id", messages=tuple(map(message, chat)), tools=tools, divided=True, **fields)


@pytest.mark.parametrize("tools", [GIVEN, None])
@pytest.mark.parametrize("end", range(2, len(CHAT) + 1))
@pytest.mark.parametrize("name", NATIVE)
def test_prompts_are_as_in_transformers(name: str, end: int, tools: Tools | None) -> None:
    tokenizer, given = family(name), {"tools": TOOLS, "custom_tools": TOOLS} if tools else {}
    expected = tokenizer.apply_chat_template(CHAT[:end], add_generation_prompt=True, tokenize=False, **given)
    tokens = encode(PromptEncoder(tokenizer), request(CHAT[:end], tools))
    assert tokenizer.decode(tokens, skip_special_tokens=False) == expected
    # What messages and tools spell out is text.
    spelled = [tokenizer.convert_tokens_to_ids(name) for name in ("[/INST]", "<|eot_id|>", "<|im_end|>")]
    harmless = json.loads(json.dumps(CHAT[:end]).replace("[/INST]", "-").replace("<|eot_id|>", "-"))
    plain = json.loads(json.dumps(given).replace("<|im_end|>", "-"))
    least = tokenizer.apply_chat_template(harmless, add_generation_prompt=True, return_dict=False, **plain)
    assert [tokens.count(each) for each in spelled] == [least.count(each) for each in spelled]


def test_thoughts_and_names_reach_the_template() -> None:
    tokenizer = family("qwen 3")
    chat = [*CHAT[:2], {"role": "assistant", "content": "Fine.", "reasoning_content": "I know that."}, CHAT[-1]]
    expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert "<think>\nI know that.\n</think>" in expected
    assert tokenizer.decode(encode(PromptEncoder(tokenizer), request(chat, None))) == expected


def test_a_template_without_tools_gets_texts() -> None:
    tokenizer = family("none")
    text = tokenizer.decode(encode(PromptEncoder(tokenizer), request(CHAT)), skip_special_tokens=False)
    [system, asks, calls, told, *_] = text.split("<|im_start|>")[1:]
    assert system.startswith("system\nBe brief.\n\nYou can call these tools")
    assert json.dumps(TOOLS[0]["function"]) in system
    assert asks == "user\nHow is Zürich?<|im_end|>\n"
    written = '<tool_call>\n{"name": "weather", "arguments": {\n "city": "Z\\u00fc \\"[/INST]\\""\n}}\n</tool_call>'
    assert calls == f"assistant\n{written}<|im_end|>\n"
    assert told == "user\n<tool_response>\n<|eot_id|> sunny\n</tool_response><|im_end|>\n"


def test_without_a_system_message_tools_are_described_in_one() -> None:
    tokenizer = family("none")
    text = tokenizer.decode(encode(PromptEncoder(tokenizer), request(CHAT[1:2])), skip_special_tokens=False)
    assert text.startswith("<|im_start|>system\nYou can call these tools")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_that_may_not_call_does_not_see_tools(name: str) -> None:
    encoder = PromptEncoder(family(name))
    none = Tools(GIVEN.definitions, ToolChoice.NONE)
    assert encode(encoder, request(CHAT[:2], none)) == encode(encoder, request(CHAT[:2], None))


def test_ids_are_as_mistral_wants_them() -> None:
    """Clients send back the ids of other servers, too."""
    tokenizer, chat = family("mistral"), json.loads(json.dumps(CHAT).replace(ID, "call_1"))
    prompt = tokenizer.decode(encode(PromptEncoder(tokenizer), request(chat)), skip_special_tokens=False)
    assert '"id": "call_1"' not in prompt


@pytest.mark.parametrize(
    ("definitions", "says"),
    [
        (["{"], "tools.0 is not JSON"),
        (["[]"], "tools.0.function.name"),
        (['{"function": {"name": "a b"}}'], "tools.0.function.name"),
        (['{"function": {"name": "a"}}'] * 2, "tools.1.function.name: 'a' is the name of tools.0"),
        (["{}"] * 129, "tools has 129 items"),
        ([" " * (256 * 1024 + 1)], "tools has 262,145 characters"),
    ],
)
def test_bad_tools_are_named(definitions: list[str], says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        encode(PromptEncoder(family("hermes")), request(CHAT[:2], Tools(tuple(definitions))))


@pytest.mark.parametrize("arguments", ["", "[]", "{", "1", "[" * 100_000])
def test_arguments_that_are_no_object_are_named(arguments: str) -> None:
    asked = GenerationRequest("id", messages=(Message("assistant", "", (ToolCall("f", arguments),)),))
    with pytest.raises(InvalidRequestError, match=r"messages\.0\.tool_calls\.0\.function\.arguments"):
        encode(PromptEncoder(family("hermes")), asked)
