"""Prompts with tools, calls and what came of them, as transformers renders them with the model's own template."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.chat_families import DEEPSEEK_MARKS, FAMILIES, family
from tests.support.prompts import encode
from thothy_ai.engine.api import GenerationRequest, Message, ToolCall, ToolChoice, Tools
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.text.prompts import PromptEncoder, PromptText

DEEPSEEK = [name for name in FAMILIES if name.startswith("deepseek")]
NATIVE = [name for name in FAMILIES if name not in ("none", *DEEPSEEK)]
CALLS_BEGIN, _, CALL_BEGIN, _, SEPARATOR, *_ = DEEPSEEK_MARKS
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


def as_deepseek_reads(chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With arguments as texts."""
    read = json.loads(json.dumps(chat))
    for entry in read:
        for call in entry.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], indent=1)
    return list(read)


@pytest.mark.parametrize("end", range(2, len(CHAT) + 1))
@pytest.mark.parametrize("name", DEEPSEEK)
def test_prompts_of_deepseek_are_as_in_transformers(name: str, end: int) -> None:
    tokenizer, chat = family(name), as_deepseek_reads(CHAT[:end])
    expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    tokens = encode(PromptEncoder(tokenizer), request(CHAT[:end], None))
    assert tokenizer.decode(tokens, skip_special_tokens=False) == expected
    assert (f"{CALL_BEGIN}{'' if name == 'deepseek 3.1' else 'function' + SEPARATOR}weather" in expected) is (end > 2)


@pytest.mark.parametrize("name", DEEPSEEK)
@pytest.mark.parametrize("begin", [0, 1], ids=["system", "no system"])
def test_tools_that_a_template_of_deepseek_does_not_write_are_described(name: str, begin: int) -> None:
    """With the tokens that the model knows, where the description has them; those in messages and tools are text."""
    tokenizer, chat = family(name), json.loads(json.dumps(CHAT[begin:4]).replace("<|eot_id|>", CALL_BEGIN))
    tokens = encode(PromptEncoder(tokenizer), request(chat))
    text = tokenizer.decode(tokens, skip_special_tokens=False)
    system, _, others = text.removeprefix("<s>").partition("<\uff5cUser\uff5c>")
    head = "Be brief.\n\n## Tools" if begin == 0 else "## Tools"
    assert system.startswith(f"{head}\nYou have access to the following tools:\n\n### weather\nDescription: Of a ")
    assert f"\n\nParameters: {json.dumps(CITY)}\n\n### now\n" in system
    fence, after = ("function" + SEPARATOR, "\n```json\n") if name != "deepseek 3.1" else ("", SEPARATOR)
    assert f"{CALLS_BEGIN}{CALL_BEGIN}{fence}tool_call_name{after}tool_call_arguments" in system
    without = as_deepseek_reads(chat[1 - begin :])
    assert (
        others
        == tokenizer.apply_chat_template(without, add_generation_prompt=True, tokenize=False).partition(
            "<\uff5cUser\uff5c>"
        )[2]
    )
    # One in the description, one in the call; the tool's answer spells it.
    assert tokens.count(tokenizer.convert_tokens_to_ids(CALL_BEGIN)) == 2
    assert text.count(CALL_BEGIN) == 3


def test_what_is_said_before_a_call_is_not_lost() -> None:
    """Older templates of DeepSeek write either what a message says or its calls."""
    tokenizer, chat = family("deepseek 3, alone"), json.loads(json.dumps(CHAT[:3]).replace("null", '"I look."'))
    text = tokenizer.decode(encode(PromptEncoder(tokenizer), request(chat, None)), skip_special_tokens=False)
    assert text.index("I look.") < text.index(f"{CALL_BEGIN}function{SEPARATOR}weather")


@pytest.mark.parametrize("thinking", [False, True])
def test_deepseek_thinks_if_its_template_is_told_to(thinking: bool) -> None:
    encoder = PromptEncoder(family("deepseek 3.1"))
    prompt = encoder.write(request(CHAT[:2], template_options={"thinking": thinking}))
    assert isinstance(prompt, PromptText)
    assert prompt.opens_thought is thinking


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
