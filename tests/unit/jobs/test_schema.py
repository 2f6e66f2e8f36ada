"""Grammar schemas: bounded everywhere, keys in order, and whatever matches them parses as the artifact."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from tests.support.plans import PLAIN, first_calls
from thothy_ai.demo.plan import demo_jobs
from thothy_ai.jobs import Artifact, Call, Context, Hook, TrendSummary, registry
from thothy_ai.jobs.schema import NOT_TEXT, SchemaError, grammar_schema, line, max_characters, prose, sentences, title

CALLS = [
    pytest.param(call, id=f"{registry.kind_of(job).name}-{size}")
    for job in demo_jobs()[:5]
    for size, context in (("large", Context()), ("small", PLAIN))
    for call in first_calls(job, context)
]
WHOLE = [
    pytest.param(request, id=f"{registry.kind_of(request).name}-{length}")
    for length in ("short", "standard", "long")
    for request in (TrendSummary(source="A text.", length=length), Hook(source="A text.", length=length))  # type: ignore[arg-type]
]

LATIN = st.characters(codec="latin-1")
BEYOND_LATIN = NOT_TEXT[NOT_TEXT.index(r"\u200b") :]


def brief(pattern: str) -> str:
    """A narrower pattern, limited to short Latin-1 text: generating from the full one takes minutes."""
    latin = pattern.replace(BEYOND_LATIN, "").replace(r"\u2028\u2029", "")
    counts = re.sub(r"\{(\d+),(\d{2,})\}", lambda count: f"{{{count[1]},{int(count[1]) + 5}}}", latin)
    return re.sub(r"\$$", r"\\Z", counts)


def instances(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that match a grammar schema."""
    match "constant" if "enum" in schema else schema.get("type", "constant"):
        case "constant":
            return st.sampled_from(schema.get("enum") or [schema["const"]])
        case "object":
            return st.fixed_dictionaries({name: instances(part) for name, part in schema["properties"].items()})
        case "array":
            return st.lists(instances(schema["items"]), min_size=schema["minItems"], max_size=schema["maxItems"])
        case "string":
            return st.from_regex(brief(schema["pattern"]), alphabet=LATIN)
    raise AssertionError(schema)


@pytest.mark.parametrize("request_", WHOLE)
@given(data=st.data())
@settings(max_examples=15)
def test_what_matches_the_grammar_parses_as_the_artifact(request_: TrendSummary | Hook, data: st.DataObject) -> None:
    (call,) = first_calls(request_)
    value = data.draw(instances(dict(call.schema)))
    artifact = registry.kind_of(request_).artifact
    assert json.loads(artifact.model_validate(value).model_dump_json()) == value


@pytest.mark.parametrize("request_", WHOLE)
def test_keys_are_all_required_and_in_the_artifact_s_order(request_: TrendSummary | Hook) -> None:
    (call,) = first_calls(request_)
    fields = registry.kind_of(request_).artifact.model_fields
    assert list(call.schema["properties"]) == call.schema["required"] == list(fields)
    assert call.schema["additionalProperties"] is False


@pytest.mark.parametrize("call", CALLS)
def test_a_budget_holds_the_longest_text_that_the_schema_allows(call: Call) -> None:
    if call.step == "write":
        assert call.sampling.max_tokens >= min(max_characters(call.schema) / 3.2, Context().max_context / 2)


@pytest.mark.parametrize("call", CALLS)
def test_grammars_compile(call: Call) -> None:
    llguidance = pytest.importorskip("llguidance", reason="the engine's extra")
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(call.schema))
    assert not llguidance.LLMatcher.validate_grammar(grammar)


class Inner(BaseModel):
    name: Annotated[str, title(3, 20)]


class Rich(Artifact):
    """References, enumerations and numbers."""

    parts: Annotated[tuple[Inner, ...], Field(max_length=3)]
    mood: Literal["calm", "loud"]
    score: int


def test_references_are_inlined_and_annotations_dropped() -> None:
    schema = grammar_schema(Rich)
    assert "$" not in "".join(schema)
    assert schema["properties"]["parts"]["items"]["required"] == ["name"]
    assert "title" not in schema["properties"]["mood"]
    assert "description" not in schema


class NoPattern(Artifact):
    word: Annotated[str, Field(max_length=20)]


class NoEnd(Artifact):
    word: Annotated[str, Field(pattern="^[a-z]+$")]


class NoEndInside(Artifact):
    words: Annotated[list[Annotated[str, Field(pattern="^[a-z]{2,}$")]], Field(max_length=2)]


class NoLength(Artifact):
    words: tuple[Annotated[str, prose(1, 20)], ...]


class AnyKeys(Artifact):
    words: dict[str, int]


@pytest.mark.parametrize(
    ("artifact", "path"),
    [
        (NoPattern, "NoPattern.word"),
        (NoEnd, "NoEnd.word"),
        (NoEndInside, "NoEndInside.words"),
        (NoLength, "NoLength.words"),
        (AnyKeys, "AnyKeys.words"),
    ],
)
def test_an_unbounded_artifact_is_refused(artifact: type[Artifact], path: str) -> None:
    with pytest.raises(SchemaError, match=f"^{path}: "):
        grammar_schema(artifact)


class Bounded(Artifact):
    plus_in_a_class: Annotated[str, Field(pattern=r"^[a-z+*\]]{1,9}\+$")]
    separate: Annotated[str, Field(pattern="^[a-z]+$", max_length=9)]


def test_a_bound_may_be_inside_the_pattern_or_separate() -> None:
    assert grammar_schema(Bounded)["properties"]["separate"]["maxLength"] == 9


class Shapes(Artifact):
    one_line: Annotated[str, prose(1, 60)]
    heading: Annotated[str, title(5, 60)]
    body: Annotated[str, sentences(1, 2, 60)]
    anything: Annotated[str, line(1, 80)] = "."


GOOD = {"one_line": "a, b", "heading": "Bikes: 30 % more", "body": "It costs 2.60 euros. “Good!”, he says."}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("one_line", "so 🎉"),
        ("one_line", "two\nlines"),
        ("one_line", "**bold**"),
        ("one_line", "zero\u200bwidth"),
        ("one_line", "back\u202ewards"),
        ("heading", ": begins with a colon"),
        ("body", "It has no end"),
        ("body", "One is here. Two is here too. Three is too many."),
        ("body", "One is here. two goes on. three as well."),
    ],
)
def test_text_fields_reject(field: str, value: str) -> None:
    assert Shapes.model_validate(GOOD)
    with pytest.raises(ValueError, match=field):
        Shapes.model_validate(GOOD | {field: value})
    assert not llguidance_accepts(field, value)


GOOD_SENTENCES = [
    "„Das ist gut“, sagt sie, und geht.",
    "Élan vital, dit-il.",
    "発酵食品の人気が高まっています。価格も上がった。",
    "「いいね。」と彼は言う。",
    "यह एक वाक्य है। दूसरा भी है।",
    "هذا خبر جديد. هل هو صحيح؟",
    "یہ ایک خبر ہے۔",
    "Cold? Good.",
    "Wait… what?",
    "Not faster. Just better…",
    'He said "no." Then he left.',
    "The U.S. economy grew by 2.5 percent.",
    "Some, e.g. this one, are i.e. short.",
    "Bikes (and #boxes) for all!",
    "At −5 °C, it works ≈ 20 % longer.",
    "iPhone sales rose.",
    "« Bien », dit-elle à 20\u202f% des gens.",
    "می\u200cخواهم بدانم.",
]


@pytest.mark.parametrize("body", GOOD_SENTENCES)
def test_good_sentences_of_any_language_are_accepted(body: str) -> None:
    assert Shapes.model_validate(GOOD | {"body": body}).body == body
    assert llguidance_accepts("body", body)


@pytest.mark.parametrize(
    "text",
    [*GOOD_SENTENCES, "It grows! #cargobikes", "ข้าวราคาแพงขึ้นมากในปีนี้", "@user: C# & AT&T, $5/day; “ok”?! 𠮷野家"],
)
def test_prose_may_be_anything_on_one_line(text: str) -> None:
    assert Shapes.model_validate(GOOD | {"one_line": text}).one_line == text
    assert llguidance_accepts("one_line", text)


@pytest.mark.parametrize("text", ['a [1] *b* → 🎉 \\ "c" <d>', "{a|b} = `c`"])
def test_a_line_is_whatever_a_source_has(text: str) -> None:
    assert llguidance_accepts("anything", text)


def llguidance_accepts(field: str, text: str) -> bool:
    """Whether a model could write this text under the grammar of `Shapes`."""
    llguidance = pytest.importorskip("llguidance", reason="the engine's extra")
    schema = grammar_schema(Shapes)
    schema = {**schema, "properties": {field: schema["properties"][field]}, "required": [field]}
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar)
    output = json.dumps({field: text}, ensure_ascii=False, separators=(",", ":")).encode()
    taken: int = matcher.validate_tokens(list(output))
    return taken == len(output)


@pytest.mark.parametrize(("field", "longest"), [("one_line", 60), ("heading", 60), ("body", 2 * 60), ("anything", 80)])
def test_the_longest_text_of_a_field_is_known(field: str, longest: int) -> None:
    schema = grammar_schema(Shapes)["properties"][field]
    assert longest <= max_characters(schema) <= longest + 12


def test_the_longest_text_of_a_schema_counts_items_and_choices() -> None:
    words = {"type": "array", "items": {"enum": ["a", "abcd"]}, "minItems": 1, "maxItems": 10}
    assert 10 * len('"abcd",') <= max_characters(words) <= 10 * len('"abcd",') + 10
