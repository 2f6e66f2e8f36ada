"""Answers in each family's form: what a grammar lets a model write, and what it is divided into."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
import torch

from tests.support.chat_families import FAMILIES, family
from thothy_ai.engine.api import GenerationRequest, Message, ToolChoice, Tools
from thothy_ai.engine.api.core import AnswerRules
from thothy_ai.engine.api.errors import BudgetTooSmallError, GrammarError, InvalidRequestError
from thothy_ai.engine.grammar.bare import BareSearch
from thothy_ai.engine.grammar.compiler import Grammar, GrammarCompiler
from thothy_ai.engine.grammar.matching import Pattern, Spot, Spots
from thothy_ai.engine.grammar.tokens import CoreTokenizer, allowed_tokens
from thothy_ai.engine.text.answer_form import LLAMA, AnswerForm, CallForm, PairForm
from thothy_ai.engine.text.answer_rules import RuleWriter
from thothy_ai.engine.text.answers import AnswerShape
from thothy_ai.engine.text.division import Divider, Marks
from thothy_ai.engine.text.parameters import CalledTool, Parameter, parameters_of
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.token_bytes import token_bytes

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
ANY_LIST = {"type": "object", "properties": {"xs": {"type": "array", "items": {"type": "integer"}}}, "required": ["xs"]}


def tool(name: str, parameters: dict[str, Any] | None) -> str:
    return json.dumps({"type": "function", "function": {"name": name, "parameters": parameters}})


TOOLS = (tool("weather", CITY), tool("sum", ANY_LIST), tool("now", None))
CALLS = [("weather", '{"city": "Zü}\\" \\\\"}'), ("sum", '{"xs": [1, 22]}'), ("now", "{}")]
COMPACT = [("weather", '{"city":"Zü}\\" \\\\"}'), ("sum", '{"xs": [1,22]}'), ("now", "{}")]
THINK = {
    "qwen 3": ("<think>", "</think>"),
    "opened": ("<think>", "</think>"),
    "pairs": ("<think>", "</think>"),
    "magistral": ("[THINK]", "[/THINK]"),
    "gemma 4": ("<|channel>thought", "<channel|>"),
    "channels": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
}
ONE_CALL = ("llama 3", "channels")
PAIRS = ("pairs", "coder", "gemma 4", "python", "marked python")  # whose arguments are no JSON


@cache
def encoder(name: str) -> PromptEncoder:
    return PromptEncoder(family(name))


@cache
def compiler(name: str) -> GrammarCompiler:
    tokenizer = family(name)
    return GrammarCompiler(
        CoreTokenizer(tokenizer.backend_tokenizer.to_str()), len(tokenizer), [tokenizer.eos_token_id]
    )


def request(schema: dict[str, Any] | None = None, *definitions: str, **tools: Any) -> GenerationRequest:
    return GenerationRequest(
        "id",
        messages=(Message("user", "."),),
        tools=Tools(definitions or TOOLS, **tools) if tools or definitions or schema is None else None,
        schema=None if schema is None else json.dumps(schema),
        divided=True,
    )


def answer(name: str, asked: GenerationRequest) -> AnswerShape:
    found = encoder(name).answer(asked, encoder(name).write(asked))
    assert found is not None
    return found


def grammar(name: str, asked: GenerationRequest) -> Grammar:
    rules = answer(name, asked).rules
    assert rules is not None
    return compiler(name).compile(rules)


def tokens_of(name: str, text: str) -> list[int]:
    return list(family(name).encode(text, add_special_tokens=False))


def takes(name: str, asked: GenerationRequest, *pieces: str, whole: bool = True) -> bool:
    """Whether the grammar allows a text token by token, and that it ends there. No token is in two of its pieces."""
    return allows(name, grammar(name, asked), *pieces, whole=whole)


def allows(name: str, found: Grammar, *pieces: str, whole: bool = True) -> bool:
    row = torch.empty(-(-len(family(name)) // 32), dtype=torch.int32)
    for token in [token for piece in pieces if piece for token in tokens_of(name, piece)]:
        found.fill_mask(row)
        if token not in allowed_tokens(row.numpy()):
            return False
        found.advance(token)
    if found.finished or not whole:
        return True
    found.fill_mask(row)
    return family(name).eos_token_id in allowed_tokens(row.numpy())


def divided(name: str, asked: GenerationRequest, pieces: list[str]) -> tuple[str, str, list[tuple[str, str]]]:
    divider: Divider = answer(name, asked).divider()
    gained = [*map(divider.push, pieces), divider.flush()]
    calls: list[list[str]] = []
    for each in (call for part in gained for call in part.calls):
        if each.index == len(calls):
            assert each.name
            calls.append([each.name, ""])
        calls[each.index][1] += each.arguments
    assert divider.thoughts == "".join(part.thoughts for part in gained)
    assert [(call.name, call.arguments) for call in divider.calls] == [tuple(call) for call in calls]
    return "".join(part.said for part in gained), divider.thoughts, [(name, text) for name, text in calls]


def form(name: str) -> CallForm:
    return encoder(name).answers.form.calls


def called(name: str) -> tuple[str, list[tuple[str, str]]]:
    calls = CALLS[:1] if name in ONE_CALL else CALLS
    return text_of(name, calls), calls


def text_of(name: str, calls: list[tuple[str, str]]) -> str:
    if (pairs := form(name).pairs) is None:
        return form(name).written(calls)

    def arguments(text: str) -> str:
        given = json.loads(text).items()
        return pairs.between.join(pairs.key(key) + value(pairs, each) + pairs.after_value for key, each in given)

    own = form(name)
    text = own.link.join(own.head(tool) + arguments(given) for tool, given in calls)
    return own.begin + text + own.after_arguments + own.end


def value(pairs: PairForm, given: object, separators: tuple[str, str] | None = None) -> str:
    if isinstance(given, str) and pairs.bare:
        return pairs.quote + given + pairs.quote
    if isinstance(given, bool) and not pairs.bare:
        return str(given)
    return json.dumps(given, ensure_ascii=False, separators=separators)


def pieces(name: str, calls: list[tuple[str, str]]) -> list[str]:
    """The text of calls, as it is made where they must be."""
    texts = []
    for at, (tool, arguments) in enumerate(calls):
        texts += [form(name).link if at else form(name).begin, form(name).head(tool)]
        if (pairs := form(name).pairs) is None:
            texts.append(arguments)
            continue
        for number, (key, given) in enumerate(json.loads(arguments).items()):
            written = value(pairs, given, (",", ": "))
            texts += [(pairs.between if number else "") + pairs.key(key), written, pairs.after_value]
    return [*texts, form(name).after_arguments + form(name).end]


def thought(name: str, text: str) -> str:
    begin, end = THINK.get(name, ("", ""))
    return "" if name not in THINK else f"{'' if name == 'opened' else begin}{text}{end}"


def spoken(name: str, text: str) -> str:
    return text.join(encoder(name).answers.form.said)


SPEAKS_FIRST = [name for name in FAMILIES if name not in (*ONE_CALL, "python")]  # before a call


@pytest.mark.parametrize("name", FAMILIES)
def test_an_answer_is_said_or_called(name: str) -> None:
    auto, (text, _) = request(), called(name)
    if name in THINK and name != "opened":
        assert takes(name, auto, "\n", thought(name, "hm"), spoken(name, "Grüezi"))
    for said in ("", "Grüezi", " {x} < y"):
        assert takes(name, auto, thought(name, "hm") + spoken(name, said))
        if name in SPEAKS_FIRST:
            assert takes(name, auto, thought(name, "hm < [") + said + text)
    assert takes(name, auto, thought(name, "") + text)
    # What looks like a call of no tool is none: where calls have no mark, it is said.
    assert takes(name, auto, thought(name, "hm") + text.replace("weather", "weathers")) is not form(name).marked
    assert not takes(name, auto, thought(name, "hm") + text.replace("city", "town"))
    assert not takes(name, auto, thought(name, "hm") + text[:-3])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_call_may_be_required_or_named(name: str) -> None:
    calls = COMPACT[:1] if name in ONE_CALL else COMPACT
    thoughts, text = thought(name, "a"), pieces(name, calls)
    one, other = pieces(name, COMPACT[:1]), pieces(name, COMPACT[1:2])
    required, single = request(choice=ToolChoice.REQUIRED), request(choice=ToolChoice.REQUIRED, parallel=False)
    named = request(only="sum")
    for asked in (required, single, named):
        assert not takes(name, asked, thoughts, spoken(name, "Hello"))
        assert not takes(name, asked, thoughts)
    assert takes(name, required, thoughts, *text)
    assert takes(name, single, thoughts, *one)
    assert takes(name, named, thoughts, "\n\n" if name in THINK else "", *other)
    assert not takes(name, named, thoughts, *one)
    if name not in ONE_CALL:
        assert not takes(name, single, thoughts, *text)


@pytest.mark.parametrize("name", ["hermes", "magistral", "channels"])
def test_the_token_that_ends_a_text_ends_calls(name: str) -> None:
    """Also where a request ignores it as an end."""
    found = grammar(name, request(choice=ToolChoice.REQUIRED))
    for piece in pieces(name, COMPACT[:1]):
        for token in tokens_of(name, piece) if piece else []:
            assert not found.finished
            found.advance(token)
    if not found.finished:
        found.advance(family(name).eos_token_id)
    assert found.finished


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_what_must_be_called_is_not_cut_off(name: str, seed: int) -> None:
    """Whatever the model writes, and however little room there is."""
    pick = random.Random(seed)
    for asked in (request(choice=ToolChoice.REQUIRED), request(only="weather"), request(CITY)):
        shape = encoder(name).answer(asked, encoder(name).write(asked))
        assert shape is not None or name not in THINK
        for spare in (0, 1, 10, 100):
            said, _, calls = divided(name, asked, [written(name, asked, spare, pick)]) if shape else ("{}", "", [])
            for text in (said, *(arguments for _, arguments in calls)):
                assert not text or isinstance(json.loads(text), dict)
            assert calls if asked.tools else said


def written(name: str, asked: GenerationRequest, spare: int, pick: random.Random) -> str:
    """A text of random tokens that the grammar allows, which has so many more than the shortest at most."""
    found, tokenizer = grammar(name, asked), family(name)
    with pytest.raises(BudgetTooSmallError) as caught:
        found.limit(1)
    budget = int(str(caught.value).split(" tokens")[0].rsplit(" ", 1)[1]) + spare
    found.limit(budget)
    row, tokens = torch.empty(-(-len(tokenizer) // 32), dtype=torch.int32), list[int]()
    while not found.finished:
        if forced := [*found.forced()]:
            tokens += forced
        else:
            found.fill_mask(row)
            token = pick.choice(allowed_tokens(row.numpy()))
            if token == tokenizer.eos_token_id:
                break
            tokens.append(token)
            forced = [token]
        for token in forced:
            found.advance(token)
        assert len(tokens) <= budget
    marks = answer(name, asked).marks
    table = token_bytes(tokenizer.backend_tokenizer)
    return "".join(marks.tokens.get(token) or table.of([token]).decode(errors="replace") for token in tokens)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_schema_and_tools_go_together(name: str) -> None:
    both, alone, (text, _) = request(CITY, *TOOLS), request(CITY), called(name)
    compact = '{"city":"Bern"}'
    assert takes(name, both, thought(name, "hm") + spoken(name, compact))
    assert takes(name, both, thought(name, "hm") + ("<|python_tag|>" if name == "llama 3" else "") + text)
    assert not takes(name, both, thought(name, "hm") + spoken(name, "Bern"))
    if name in THINK:
        assert takes(name, alone, thought(name, "hm") + "\n\n" + spoken(name, compact))
        assert not takes(name, alone, thought(name, "hm") + text)
    else:
        assert encoder(name).answer(alone, encoder(name).write(alone)) is None  # a schema alone binds it


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ('{"name": "weather", "parameters": {"city": "Bern"}}', True),
        ('{"name": "weather", "parameters": {"city": 5}}', False),
        ('{"name": "other", "parameters": {"city": "Bern"}}', False),
        ('{"name": "now", "parameters": {}}', True),
        ('{"note":"Bern"}', True),
        ('{"name":"Bern","note":"x"}', True),
        ('{"name":5}', False),
        ("Bern", False),
    ],
)
def test_calls_that_begin_as_json_does_go_with_a_schema(text: str, allowed: bool) -> None:
    """As those of Llama, where the tokenizer has no token that comes before them."""
    said = {"type": "object", "properties": {"name": {"type": "string"}, "note": {"type": "string"}}}
    tools = (CalledTool("weather"), CalledTool("now"))
    lark = RuleWriter(AnswerForm(LLAMA, native=True), {}).write(tools, opened=False, parallel=True, bound=True)
    schemas = [json.dumps(each) for each in (CITY, NOTHING, {**said, "additionalProperties": False})]
    rules = AnswerRules(lark, tuple(schemas), ("tools.0", "tools.1", ""))
    assert allows("llama 3", compiler("llama 3").compile(rules), text) is allowed


@pytest.mark.parametrize("name", FAMILIES)
def test_answers_are_divided_wherever_they_are_cut(name: str) -> None:
    auto, (text, calls) = request(), called(name)
    marks = answer(name, auto).marks
    thoughts = "" if name not in THINK else "I [see] </thin <tool_call> ü"
    cases = [("Schön 🙂 < { [", [])]
    cases += [("", calls), *([("So:", calls)] if name in SPEAKS_FIRST else [])]
    for said, expected in cases:
        written = f"{said}\n{text}" if said and expected else text if expected else spoken(name, said)
        whole = marks.spelled(thought(name, f"\n{thoughts}\n") + ("\n\n" if name in THINK else "") + written)
        for at in range(len(whole) + 1):
            assert divided(name, auto, [whole[:at], whole[at:]]) == (said, thoughts, expected)
        assert divided(name, auto, list(whole)) == (said, thoughts, expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_answer_that_is_cut_off_keeps_what_it_has(name: str) -> None:
    auto, (text, calls) = request(), called(name)
    whole = answer(name, auto).marks.spelled(thought(name, "hm") + text)
    for at in range(len(whole) + 1):
        said, thoughts, found = divided(name, auto, list(whole[:at]))
        assert "hm".startswith(thoughts) or thoughts.startswith("hm")
        assert [name for name, _ in found] == [name for name, _ in calls][: len(found)]
        assert all(full.startswith(part) for (_, full), (_, part) in zip(calls, found, strict=False))
        assert not said or not found


def test_a_mark_is_a_token_and_no_text() -> None:
    """What a model spells out in letters is not a mark where the mark is a special token."""
    text = '[TOOL_CALLS][{"name": "now", "arguments": {}}]'
    assert divided("mistral", request(), [text]) == (text, "", [])
    tokens = family("none").encode("[TOOL_CALLS]"[:5]) + family("none").encode("[TOOL_CALLS]"[5:])
    found = grammar("mistral", request(choice=ToolChoice.REQUIRED))
    with pytest.raises(GrammarError):
        found.advance(tokens[0])


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}, "tools.1.function.parameters"),
        ({"type": "object", "properties": {"a": {"not": {}}}}, "tools.1.function.parameters: .*not"),
        ({"type": "array"}, "tools.1.function.parameters"),
        ({"$ref": "#/nowhere"}, "tools.1.function.parameters"),
    ],
)
def test_a_tool_whose_schema_does_not_compile_is_named(parameters: dict[str, Any], says: str) -> None:
    asked = request(None, TOOLS[0], tool("bad", parameters))
    with pytest.raises((GrammarError, InvalidRequestError), match=says):
        grammar("hermes", asked)


@pytest.mark.parametrize(
    "parameters", [{"$defs": {"C": CITY}, "$ref": "#/$defs/C"}, CITY | {"type": ["object", "null"]}]
)
def test_arguments_are_always_an_object(parameters: dict[str, Any]) -> None:
    asked = request(None, tool("weather", parameters))
    assert takes("hermes", asked, form("hermes").written(CALLS[:1]))
    assert not takes("hermes", asked, form("hermes").written([("weather", "[]")]))


def test_forms_are_found_in_templates() -> None:
    found = {name: (encoder(name).answers.form.native, form(name).begin, form(name).head("f")) for name in FAMILIES}
    assert found == {
        "hermes": (True, "<tool_call>", '\n{"name": "f", "arguments": '),
        "qwen 3": (True, "<tool_call>", '\n{"name": "f", "arguments": '),
        "opened": (True, "<tool_call>", '\n{"name": "f", "arguments": '),
        "llama 3": (True, "", '{"name": "f", "parameters": '),
        "mistral": (True, "[TOOL_CALLS] [", '{"name": "f", "arguments": '),
        "magistral": (True, "[TOOL_CALLS]", "f[ARGS]"),
        "granite": (True, "<|tool_call|>[", '{"name": "f", "arguments": '),
        "channels": (True, "<|channel|>commentary to=functions.", "f <|constrain|>json<|message|>"),
        "pairs": (True, "<tool_call>", "f\n"),
        "coder": (True, "<tool_call>", "\n<function=f>\n"),
        "gemma 4": (True, "<|tool_call>", "call:f{"),
        "python": (True, "[", "f("),
        "marked python": (True, "<|tool_call|>[", "f("),
        # A form that is not known gives way to JSON.
        "none": (False, "<tool_call>", '\n{"name": "f", "arguments": '),
    }
    assert {name: found.thought for name in FAMILIES if (found := encoder(name).answers.form).thought} == THINK


MANY = {
    "type": "object",
    "$defs": {"Day": {"enum": ["today", "tomorrow"]}},
    "properties": {
        "note": {"type": "string"},
        "name": {"type": "string", "maxLength": 4},
        "unit": {"enum": ["c", "cf"]},
        "days": {"type": "array", "items": {"$ref": "#/$defs/Day"}},
        "deep": {"type": ["object", "null"]},
        "sure": {"type": "boolean"},
        "least": {"type": "number"},
    },
    "required": ["unit", "least"],
}
GIVEN: dict[str, Any] = {"note": "a\nb </x", "name": "Zürí", "unit": "cf", "days": ["today"], "deep": {"}": "]"},
                         "sure": True, "least": -1.5e3}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({}, True),
        (dict.fromkeys(("note", "name", "days", "deep", "sure")), True),  # left out
        ({"note": None, "deep": None, "sure": False}, True),
        ({"note": ""}, True),
        ({"unit": "c"}, True),
        ({"unit": "k"}, False),
        ({"unit": None}, False),
        ({"least": None}, False),
        ({"least": "much"}, False),
        ({"name": "Zürich"}, False),
        ({"days": ["now"]}, False),
        ({"more": 1}, False),
    ],
)
def test_each_argument_is_bound_by_its_schema(name: str, changes: dict[str, Any], allowed: bool) -> None:
    given = {key: value for key, value in (GIVEN | changes).items() if value is not None}
    calls = [("many", json.dumps(given, ensure_ascii=False))]
    text, tool_ = text_of(name, calls), tool("many", MANY)
    for asked in (
        request(None, tool_),
        request(None, tool_, choice=ToolChoice.REQUIRED),
        request(None, tool_, only="many"),
    ):
        may = asked.tools is not None and asked.tools.choice is ToolChoice.AUTO and not asked.tools.only
        texts = [text] if may else pieces(name, calls)
        assert takes(name, asked, thought(name, ""), *texts) is allowed
    if allowed:
        whole = answer(name, request(None, tool_)).marks.spelled(thought(name, "hm") + text)
        for at in range(len(whole) + 1):
            assert divided(name, request(None, tool_), [whole[:at], whole[at:]])[2] == calls
        assert divided(name, request(None, tool_), list(whole))[2] == calls


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"type": "object", "anyOf": [{}]}, "tools.0.function.parameters.anyOf: this model"),
        ({"type": "object", "minProperties": 1}, "tools.0.function.parameters.minProperties"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "there is no '#/\\$defs/A'"),
        ({"$ref": "elsewhere"}, "there is no 'elsewhere'"),
        ({"type": "object", "properties": 5}, "expected properties"),
        ({"type": "object", "required": "a"}, "a list of those required"),
        ({"type": "object", "properties": {"a": {"not": {}}}}, "tools.0.function.parameters.properties.a"),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}, "parameters.properties.a"),
        *(
            ({"properties": {"a": {"enum": listed}}}, "properties.a: .*enum must be an array")
            for listed in (None, 5, "abc")
        ),
        *(
            ({"properties": {"a": {"type": "string", key: given}}}, f"properties.a: .*{key}")
            for key in ("pattern", "format")
            for given in (5, None, True, [])
        ),
        *(
            (
                {"properties": {"a": {"type": "string", "maxLength": most}}},
                "properties.a: #/maxLength: expected a whole number",
            )
            for most in (-1, True, "5", None, 1.5)
        ),
    ],
)
@pytest.mark.parametrize("name", ["pairs", "python"])
def test_what_cannot_bind_single_arguments_is_refused(name: str, parameters: dict[str, Any], says: str) -> None:
    with pytest.raises((GrammarError, InvalidRequestError), match=says):
        grammar(name, request(None, tool("bad", parameters)))


OPTIONAL: dict[str, Any] = {
    "type": "object",
    "nullable": False,
    "x-order": ["city", "unit"],
    "$defs": {"Unit": {"enum": ["c", "f"], "title": "Unit"}, "Same": {"$ref": "#/properties/days"}},
    "properties": {
        "city": {"anyOf": [{"type": "string", "maxLength": 5.0}, {"type": "null"}], "default": None, "title": "City"},
        "unit": {"anyOf": [{"$ref": "#/$defs/Unit"}, {"type": "null"}]},
        "other": {"$ref": "#/$defs/Unit", "description": "of other words"},
        "note": {"type": ["null", "string"]},
        "days": {"type": "integer", "minimum": 1},
        "more": {"$ref": "#/properties/days"},
        "same": {"type": "array", "items": {"$ref": "#/$defs/Same"}},
        "then": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
}


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"city": "Bern", "unit": "f", "other": "c", "note": "nullable"}, True),
        ({"city": None, "unit": None, "note": None, "then": None}, True),
        ({"city": "", "note": "nul"}, True),
        ({"city": "Zürich"}, False),
        ({"unit": "k"}, False),
        ({"other": None}, False),
        ({"days": 2, "more": 3, "same": [4], "then": {"more": 2, "then": {"city": "Ulm"}}}, True),
        ({"more": 0}, False),
        ({"same": ["4"]}, False),
        ({"then": {"more": 0}}, False),
    ],
)
@pytest.mark.parametrize("name", ["pairs", "coder"])
def test_what_may_be_null_and_what_refers_to_the_whole_are_taken(
    name: str, given: dict[str, Any], allowed: bool
) -> None:
    calls = [("f", json.dumps(given, ensure_ascii=False))]
    text, asked = text_of(name, calls), request(None, tool("f", OPTIONAL))
    assert takes(name, asked, thought(name, ""), text) is allowed
    required = request(None, tool("f", OPTIONAL), choice=ToolChoice.REQUIRED)
    assert takes(name, required, thought(name, ""), *pieces(name, calls)) is allowed
    if allowed:
        whole = answer(name, asked).marks.spelled(thought(name, "") + text)
        assert divided(name, asked, list(whole))[2] == divided(name, asked, [whole])[2] == calls


BOUNDED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d+$"},
        "any": {"type": "string", "pattern": "(?i)é|\\.$"},
        "note": {"type": "string", "minLength": 3, "maxLength": 9},
        "both": {"type": "string", "minLength": 6, "pattern": '^(ab|[/<>"\\\\])*$'},
        "day": {"type": "string", "format": "date"},
        "phone": {"type": "string", "format": "phone"},
        "id": {"type": "string", "format": "uuid", "description": "of the order"},
        "size": {"type": "string", "enum": ["", "s", "xxl"], "maxLength": 2},
    },
    "required": ["code", "both", "id"],
}
BOUND: dict[str, Any] = {"code": "AB-1", "any": 'say "É" \\', "note": "Zürí\n</x", "both": '"</>\\ab"',
                         "day": "2024-02-29", "phone": "", "id": "123e4567-e89b-12d3-a456-426614174000",
                         "size": ""}  # fmt: skip
MAY_BE_NULL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "unit": {"type": ["string", "null"], "enum": ["c", "f", None]},
        "same": {"enum": ["c", None]},
        "word": {"type": ["string", "null"], "minLength": 5},
        "digits": {"anyOf": [{"type": "string", "pattern": "^[0-9]+$"}, {"type": "null"}]},
    },
}


REFUSED = [
    ("code", "ab-1"),
    ("code", "AB-"),
    ("code", "xAB-1"),
    ("any", "so. "),
    ("note", "ab"),
    ("note", "Zürich ist"),
    ("both", "abab"),
    ("both", "abababa"),
    ("day", "2023-02-29"),
    ("id", "123e4567"),
    ("size", "xxl"),
    ("size", "m"),
]
OF_BOUNDED = [
    (BOUNDED, BOUND, True),
    (BOUNDED, BOUND | {"any": "so.", "note": "   ", "size": "s", "both": "ababab" * 20}, True),
    *((BOUNDED, BOUND | {key: given}, False) for key, given in REFUSED),
]
OF_MAY_BE_NULL: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    (MAY_BE_NULL, {"unit": None, "same": None, "word": None, "digits": None}, True),
    (MAY_BE_NULL, {"unit": "f", "same": "c", "word": "nulls", "digits": "01"}, True),
    (MAY_BE_NULL, {"unit": "k"}, False),
    (MAY_BE_NULL, {"word": "nul"}, False),
    (MAY_BE_NULL, {"digits": ""}, False),
]


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    ("name", "schema", "given", "allowed"),
    [
        *((name, *case) for name in ("pairs", "coder", "gemma 4") for case in OF_BOUNDED),
        *((name, *case) for name in ("pairs", "coder") for case in OF_MAY_BE_NULL),
    ],
)
def test_bounded_strings_have_the_forms_own_quotes(
    name: str, schema: dict[str, Any], given: dict[str, Any], allowed: bool, required: bool
) -> None:
    calls = [("f", json.dumps(given, ensure_ascii=False))]
    asked = request(None, tool("f", schema), choice=ToolChoice.REQUIRED if required else ToolChoice.AUTO)
    texts = pieces(name, calls) if required else [text_of(name, calls)]
    assert takes(name, asked, thought(name, ""), *texts) is allowed
    if allowed:
        whole = answer(name, asked).marks.spelled(thought(name, "") + text_of(name, calls))
        assert divided(name, asked, list(whole))[2] == divided(name, asked, [whole])[2] == calls


@pytest.mark.parametrize("name", ["pairs", "gemma 4"])
@pytest.mark.parametrize("seed", range(2))
def test_bounded_strings_are_not_cut_off(name: str, seed: int) -> None:
    schema = {**BOUNDED, "properties": BOUNDED["properties"] | MAY_BE_NULL["properties"]}
    asked, pick = request(None, tool("f", schema), choice=ToolChoice.REQUIRED), random.Random(seed)
    rules = jsonschema_rs.validator_for(schema, validate_formats=True)
    for spare in (0, 1, 3, 10, 40, 200):
        _, _, calls = divided(name, asked, [written(name, asked, spare, pick)])
        for _, arguments in calls:
            rules.validate(json.loads(arguments))


@pytest.mark.parametrize(
    "bounds",
    [
        {"pattern": "^</arg_value>$"},  # what ends a text in this form
        {"pattern": "^a$", "minLength": 2},  # no string, as far as is known here
        {"pattern": "^(.*a{300}.*)?$"},  # in which a string may stand at too many places
        {"enum": ["a", 1]},
        {"type": ["string", "null"], "enum": ["null", None]},
    ],
)
def test_what_bare_text_cannot_express_is_json(bounds: dict[str, Any]) -> None:
    pairs = form("pairs").pairs
    assert pairs is not None
    found = parameters_of({"type": "object", "properties": {"a": {"type": "string"} | bounds}}, "", pairs, BareSearch())
    assert found[0].schema is not None


@pytest.mark.parametrize(
    "each",
    [
        {"pattern": "a{70000}"},
        {"pattern": "a{%d}"},
        {"pattern": "a{%d}b?", "enum": ["a" * 300]},
        {"pattern": "(a|b){5000}"},
        {"pattern": "^((a?){%d}){%d}$"},
        {"pattern": "^((aa)|(bbb)|c{4}|d{5})*$", "minLength": 300, "maxLength": 301},
        {"pattern": "^[%s]*$", "minLength": 400},
        {"pattern": ".*(x|y)" * 60, "format": "uri"},
        {"minLength": 100_000},
        {"maxLength": 1_000_000, "enum": ["b" * 50_000]},
    ],
)
def test_patterns_that_cost_much_hold_no_request_up(each: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many parameters, each with a pattern of its own."""
    pairs, followed, reached = form("pairs").pairs, 0, Pattern._reached

    def counted(of: Pattern, begun: list[Spot], *limit: int) -> Spots:
        nonlocal followed
        found = reached(of, begun, *limit)
        followed += 1 + len(found)
        assert followed < 40_000
        return found

    monkeypatch.setattr(Pattern, "_reached", counted)
    assert pairs is not None
    texts = [json.dumps(each).replace("%d", str(50 + number)).replace("%s", "ab" * number) for number in range(60)]
    asked = {f"p{number}": {"type": "string"} | json.loads(text) for number, text in enumerate(texts)}
    plain = {"type": "string"}
    found = parameters_of({"properties": asked | {"plain": plain}}, "", pairs, BareSearch())
    assert [of.schema is None for of in found[-2:]] == [False, True]


def test_a_name_that_begins_as_another_does_is_told_apart() -> None:
    """As of GLM 4.7, which writes nothing between a name and its arguments."""
    pairs = PairForm("<arg_key>", "</arg_key><arg_value>", "</arg_value>")
    calls = CallForm("<tool_call>", "", "", "", "</tool_call>", again="", pairs=pairs)
    tools = [CalledTool(name, (Parameter("x", required=False),)) for name in ("now", "now_x", "nowhere")]
    text = "<tool_call>now_x<arg_key>x</arg_key><arg_value>1</arg_value></tool_call><tool_call>now</tool_call>"
    for at in range(len(text)):
        divider = Divider(Marks(AnswerForm(calls, native=True), {}, ()), tools, opened=False)
        divider.push(text[:at])
        divider.push(text[at:])
        assert [(call.name, call.arguments) for call in divider.calls] == [("now_x", '{"x": "1"}'), ("now", "{}")]
