"""Grammar schemas: bounded everywhere, keys in order, and whatever matches them parses as the artifact."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from thothy_ai.demo.plan import demo_jobs
from thothy_ai.jobs import Artifact, Output, ReportSection, Request, Translation, registry
from thothy_ai.jobs.schema import NOT_TEXT, SchemaError, grammar_schema, prose, sentences, title

SAMPLES = {type(job): job for job in demo_jobs()}

LATIN = st.characters(codec="latin-1")
BEYOND_LATIN = NOT_TEXT[NOT_TEXT.index(r"\u200b") :]


def brief(pattern: str) -> str:
    """A narrower pattern, limited to short Latin-1 text: generating from the full one takes minutes."""
    latin = pattern.replace(BEYOND_LATIN, "").replace(r"\u0100-\u1fff\u3000-\ud7ff", "")
    counts = re.sub(r"\{(\d+),(\d{2,})\}", lambda count: f"{{{count[1]},{int(count[1]) + 5}}}", latin)
    return re.sub(r"\$$", r"\\Z", counts)


def instances(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that match a grammar schema."""
    match schema.get("type", "constant"):
        case "constant":
            return st.just(schema["const"])
        case "object":
            return st.fixed_dictionaries({name: instances(part) for name, part in schema["properties"].items()})
        case "array":
            return st.lists(instances(schema["items"]), min_size=schema["minItems"], max_size=schema["maxItems"])
        case "string":
            return st.from_regex(brief(schema["pattern"]), alphabet=LATIN)
    raise AssertionError(schema)


@pytest.mark.parametrize("request_", SAMPLES.values(), ids=lambda job: registry.kind_of(job).name)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_what_matches_the_grammar_parses_as_the_artifact(request_: Request, data: st.DataObject) -> None:
    kind = registry.kind_of(request_)
    value = data.draw(instances(kind.plan.schema(request_)))
    assert json.loads(kind.artifact.model_validate(value).model_dump_json()) == value


@pytest.mark.parametrize("request_", SAMPLES.values(), ids=lambda job: registry.kind_of(job).name)
def test_keys_are_all_required_and_in_the_artifact_s_order(request_: Request) -> None:
    kind = registry.kind_of(request_)
    schema = kind.plan.schema(request_)
    assert list(schema["properties"]) == schema["required"] == list(kind.artifact.model_fields)
    assert schema["additionalProperties"] is False


def test_each_caller_gets_its_own_schema() -> None:
    request = SAMPLES[Translation]
    kind = registry.kind_of(request)
    kind.plan.schema(request)["properties"].clear()
    assert kind.plan.schema(request)["properties"]


def test_a_translation_s_length_follows_its_passage() -> None:
    kind = registry.find("translation")
    short, long = (Translation(source="A text.", passage="word " * count) for count in (10, 100))
    assert kind.plan.schema(short) != kind.plan.schema(long)
    assert kind.plan.sampling(short).max_tokens < kind.plan.sampling(long).max_tokens


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


GOOD = {"one_line": "a, b", "heading": "Bikes: 30 % more", "body": "It costs 2.60 euros. “Good!”, he says."}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("one_line", "so 🎉"),
        ("one_line", "two\nlines"),
        ("one_line", "**bold**"),
        ("one_line", "zero\u200bwidth"),
        ("heading", "lower case"),
        ("heading", "Ends in a comma,"),
        ("body", "It has no end"),
        ("body", "One is here. Two is here too. Three is too many."),
    ],
)
def test_text_fields_reject(field: str, value: str) -> None:
    assert Shapes.model_validate(GOOD)
    with pytest.raises(ValueError, match=field):
        Shapes.model_validate(GOOD | {field: value})


@pytest.mark.parametrize(
    "body", ["„Das ist gut“, sagt sie, und geht.", "Élan vital, dit-il.", "発酵食品の人気が高まっています。"]
)
def test_text_fields_accept_other_languages(body: str) -> None:
    assert Shapes.model_validate(GOOD | {"body": body}).body == body


@pytest.mark.parametrize("heading", ['The "new" normal', "#1: why 🎉", "C:\\new\\t", "<b>{a|b}</b>", "発酵 – 100 %"])
def test_a_heading_with_any_characters_is_fixed_by_the_grammar_and_accepted(heading: str) -> None:
    """What the grammar lets through, byte for byte, is what the artifact accepts."""
    llguidance = pytest.importorskip("llguidance", reason="the engine's extra")
    kind = registry.find("report_section")
    request = ReportSection(source="A text.", heading=heading)
    matcher = llguidance.LLMatcher(
        llguidance.LLTokenizer("byte"),
        llguidance.LLMatcher.grammar_from_json_schema(json.dumps(kind.plan.schema(request))),
    )
    body = "Crocks sell out within hours in Lyon. Makers lend them to schools now."
    output = json.dumps({"body": body, "heading": heading}, ensure_ascii=False, separators=(",", ":")).encode()
    assert matcher.validate_tokens(list(output)) == len(output), matcher.get_error()
    verdict = kind.plan.judge(request, Output(output.decode()))
    assert verdict.artifact is not None
    assert verdict.artifact.model_dump() == {"body": body, "heading": heading}
    other = output[:-2] + b'!"}'
    assert matcher.validate_tokens(list(other)) < len(other)


@pytest.mark.parametrize("request_", SAMPLES.values(), ids=lambda job: registry.kind_of(job).name)
def test_grammars_compile(request_: Request) -> None:
    llguidance = pytest.importorskip("llguidance", reason="the engine's extra")
    grammar = llguidance.LLMatcher.grammar_from_json_schema(
        json.dumps(registry.kind_of(request_).plan.schema(request_))
    )
    assert not llguidance.LLMatcher.validate_grammar(grammar)
