"""The bundled cases and injections are complete and consistent; files of one's own are read, or refused by line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from thothy_ai.jobs import registry
from thothy_ai.jobs.evaluation import scores
from thothy_ai.jobs.evaluation.cases import DATA, Case, CaseError, bundled, injections, lengthened, read_cases
from thothy_ai.jobs.text.division import estimated_tokens

KINDS = ("trend_summary", "hook", "translation", "report", "report_section")
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in (DATA / "sources").iterdir()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_30_cases_in_many_languages(kind: str) -> None:
    cases = bundled(kind)
    assert len(cases) == 30
    locales = {str(case.request.get("locale") or case.request["target_locale"]).partition("-")[0] for case in cases}
    assert len(locales) >= 8
    assert len({json.dumps(dict(case.request), sort_keys=True) for case in cases}) == 30


@pytest.mark.parametrize("kind", KINDS)
def test_each_request_is_valid(kind: str) -> None:
    for case in bundled(kind):
        registry.find(kind).request.model_validate(case.request)


def test_a_translation_has_a_reference_and_other_kinds_have_facts() -> None:
    assert all(case.reference and not case.facts for case in bundled("translation"))
    for kind in set(KINDS) - {"translation"}:
        assert all(1 <= case.expected <= len(case.facts) for case in bundled(kind))


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"translation"}))
def test_a_source_states_all_of_its_facts(kind: str) -> None:
    for case in bundled(kind):
        source = str(case.request["source"])
        missing = [fact for fact in case.facts if not _covers(case, fact, source)]
        assert missing == [], case.id


@pytest.mark.parametrize("tokens", [1, 900, 5000])
def test_sources_become_as_long_as_asked_for(tokens: int) -> None:
    short, texts = bundled("report_section")[:3], [*SOURCES.values()]
    for case, long in zip(short, lengthened(short, tokens, texts), strict=True):
        own, source = str(case.request["source"]).strip(), str(long.request["source"])
        assert source.count(own) == 1
        assert tokens - 700 < estimated_tokens(source) < max(tokens, estimated_tokens(own) + 1)
        assert len(source.partition(own)[0]) <= len(source) / 2
        assert {**long.request, "source": own} == {**case.request, "source": own}


def _covers(case: Case, fact: tuple[str, ...], text: str) -> bool:
    return scores.coverage(Case(case.id, case.request, (fact,), 1), {"text": text}) == 1


def test_each_source_is_used() -> None:
    used = {str(case.request["source"]) for case in bundled("trend_summary")}
    assert used == set(SOURCES.values())


def test_there_are_20_injections_of_many_styles_and_languages() -> None:
    found = injections()
    assert len({injection.id for injection in found}) == 20
    assert len({injection.style for injection in found}) >= 8
    assert len({str(injection.request["locale"]) for injection in found}) >= 7


def test_an_injection_is_in_its_source_and_what_obedience_shows_is_not_elsewhere() -> None:
    for injection in injections():
        source = str(injection.request["source"])
        assert Counter([injection.text])[injection.text] == source.count(injection.text) == 1
        without = source.replace(injection.text, "")
        assert scores.obeys(injection, {"text": without}, "") is None, injection.id
        assert injection.obeyed or injection.answers_in


def test_cases_of_ones_own_are_read_with_their_sources(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "a.txt").write_text("Ten cats.", encoding="utf-8")
    first = {"id": "1", "request": {"source_file": "a.txt", "locale": "de"}, "facts": [["10", "zehn"], ["cat"]]}
    second = {"id": "2", "request": {"source": "Two dogs."}, "reference": "Zwei Hunde."}
    path = tmp_path / "mine.jsonl"
    path.write_text(f"{json.dumps(first)}\n\n{json.dumps(second)}\n", encoding="utf-8")
    one, two = read_cases(path)
    assert one == Case("1", {"locale": "de", "source": "Ten cats."}, (("10", "zehn"), ("cat",)), 2)
    assert (two.reference, two.facts) == ("Zwei Hunde.", ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no cases"),
        ("{", "line 1: "),
        ("[]", "line 1: "),
        ('{"id": "1"}', "'request' is missing"),
        ('{"id": " ", "request": {}}', "line 1: ' ' is not a text"),
        ('{"id": "1", "request": {"source_file": "no.txt"}}', "line 1: .*no.txt"),
        ('{"id": "1", "request": {}, "facts": [[]]}', "line 1: a fact has no alternatives"),
        ('{"id": "1", "request": {}, "facts": [[3]]}', "line 1: 3 is not a text"),
        ('{"id": "1", "request": {}}\n{"id": "1", "request": {}}', "two cases have the same id"),
    ],
)
def test_a_wrong_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CaseError, match=message):
        read_cases(path)


def test_a_missing_file_and_a_kind_without_cases_are_named(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"nowhere\.jsonl: No such file"):
        read_cases(tmp_path / "nowhere.jsonl")
    with pytest.raises(CaseError, match=r"no cases of the kind 'echo' are bundled; pass a file"):
        bundled("echo")
