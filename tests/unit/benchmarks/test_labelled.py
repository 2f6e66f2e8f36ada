"""The labelled texts are complete, balanced, and as their format says."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.validators import FOLDER
from thothy_ai.jobs import RejectionReason, registry
from thothy_ai.jobs.checks.gates import group_of
from thothy_ai.jobs.evaluation.labelled import KINDS, SPLITS, LabelledText, load
from thothy_ai.jobs.text.strings import strings_in

IN_FOLDERS = ("fresh", "development", "unseen")  # splits with files and sources of their own
FOLDERS = (FOLDER, *(FOLDER / split for split in IN_FOLDERS))
SCRIPTS = ("LATIN", "CYRILLIC", "ARABIC", "DEVANAGARI", "CJK", "HIRAGANA", "HANGUL")
LANGUAGES = {"en", "de", "fr", "es", "it", "pt", "pl", "tr", "ja", "zh", "ko", "ar", "ru", "hi"}
# What decides about other texts, about an attempt or about the prompt; no text by itself can show it.
WITHOUT_TEXTS = {
    RejectionReason.OFF_SCHEMA,
    RejectionReason.UNSUPPORTED,
    RejectionReason.SENT_BACK,
    RejectionReason.PROMPT_TOO_LONG,
    RejectionReason.VALIDATOR_ERROR,
    # Of rules that came after the texts were written and labelled; docs/validators.md calls them unmeasured.
    RejectionReason.FOREIGN_TAG,
    RejectionReason.FORMALITY,
    RejectionReason.TOO_MANY_SENTENCES,
    RejectionReason.READING_LEVEL,
    RejectionReason.REPEATS_TITLE,
    RejectionReason.MUST_MENTION,
    RejectionReason.UNKNOWN_WORDS,
}


@pytest.fixture(scope="module")
def texts() -> list[LabelledText]:
    return load(FOLDER)


def test_ids_are_unique(texts: list[LabelledText]) -> None:
    assert [id_ for id_, count in Counter(text.id for text in texts).items() if count > 1] == []


def test_no_text_is_there_twice_under_one_request(texts: list[LabelledText]) -> None:
    bodies = Counter(json.dumps([text.request, text.artifact], sort_keys=True) for text in texts)
    assert bodies.most_common(1)[0][1] == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "report_section"])
def test_each_kind_has_enough_texts_of_either_label_in_either_half(texts: list[LabelledText], kind: str) -> None:
    counts = Counter(
        (text.accepted, text.split) for text in texts if text.kind == kind and text.split not in IN_FOLDERS
    )
    assert sum(counts.values()) >= 40
    for accepted in (True, False):
        tuned, held_out = counts[accepted, "tuned"], counts[accepted, "held_out"]
        assert min(tuned, held_out) >= 10
        assert abs(tuned - held_out) <= 0.2 * (tuned + held_out)


def test_each_language_has_both_labels_in_both_halves(texts: list[LabelledText]) -> None:
    cells = {(text.language, text.accepted, text.split) for text in texts}
    missing = [
        (language, accepted, split)
        for language in sorted(LANGUAGES)
        for accepted in (True, False)
        for split in ("tuned", "held_out")
        if (language, accepted, split) not in cells
    ]
    assert missing == []


def test_the_fresh_split_has_enough_texts_of_each_kind_and_language_group(texts: list[LabelledText]) -> None:
    fresh = [text for text in texts if text.split == "fresh"]
    assert len(fresh) >= 180
    assert 0.5 <= sum(text.accepted for text in fresh) / len(fresh) <= 0.6
    kinds = Counter((text.kind, text.accepted) for text in fresh)
    assert min(kinds[kind, accepted] for kind in KINDS for accepted in (True, False)) >= 10
    assert min(Counter(group_of(text.language) for text in fresh).values()) >= 12
    assert {text.language for text in fresh} >= LANGUAGES | {"nl", "uk", "el", "he", "vi", "id", "sv"}
    assert sum(RejectionReason.UNSUPPORTED in text.reasons for text in fresh) < 0.1 * len(fresh)


def test_the_unseen_split_has_enough_texts_of_each_kind_and_language_group(texts: list[LabelledText]) -> None:
    unseen = [text for text in texts if text.split == "unseen"]
    labels = Counter(text.accepted for text in unseen)
    assert min(labels[True], labels[False]) >= 200
    kinds = Counter((text.kind, text.accepted) for text in unseen)
    assert min(kinds[kind, True] for kind in KINDS) >= 35
    assert min(kinds[kind, False] for kind in KINDS) >= 30
    groups = Counter((group_of(text.language), text.accepted) for text in unseen)
    assert min(groups.values()) >= 7
    assert {text.language for text in unseen} >= LANGUAGES | {"nl"}
    assert sum(RejectionReason.UNSUPPORTED in text.reasons for text in unseen) < 0.1 * len(unseen)


def test_the_development_split_has_both_labels_in_many_languages(texts: list[LabelledText]) -> None:
    development = [text for text in texts if text.split == "development"]
    labels = Counter(text.accepted for text in development)
    assert min(labels[True], labels[False]) >= 100
    assert len({text.language for text in development}) >= 8
    groups = Counter((group_of(text.language), text.accepted) for text in development)
    assert min(groups.values()) >= 5


def test_each_text_is_in_the_folder_of_its_split() -> None:
    assert {entry["split"] for entry in _entries(FOLDER)} == set(SPLITS) - set(IN_FOLDERS)
    for split in IN_FOLDERS:
        assert {entry["split"] for entry in _entries(FOLDER / split)} == {split}


def test_there_are_enough_texts_and_scripts(texts: list[LabelledText]) -> None:
    assert len(texts) >= 240
    for script in SCRIPTS:
        assert sum(script in _scripts(text) for text in texts) >= 10, script


def _scripts(text: LabelledText) -> set[str]:
    letters = {character for part in strings_in(dict(text.artifact)) for character in part if character.isalpha()}
    return {unicodedata.name(letter, "").split()[0] for letter in letters}


def test_each_reason_that_a_text_can_show_has_one(texts: list[LabelledText]) -> None:
    shown = {reason for text in texts for reason in text.reasons}
    assert set(RejectionReason) - WITHOUT_TEXTS <= shown


def test_no_source_is_in_two_splits(texts: list[LabelledText]) -> None:
    splits: dict[str, set[str]] = {}
    for text in texts:
        splits.setdefault(text.request["source"], set()).add(text.split)
    assert [source for source, those in splits.items() if len(those) > 1] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_source_is_used(folder: Path) -> None:
    used = {entry["request"].get("source_file") for entry in _entries(folder)} - {None}
    assert used == {path.name for path in (folder / "sources").iterdir()}


def _entries(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def test_each_text_that_only_measures_fits_its_schema(texts: list[LabelledText]) -> None:
    for text in (text for text in texts if text.split in IN_FOLDERS):
        kind = registry.find(text.kind)
        kind.request.model_validate(dict(text.request))
        kind.artifact.model_validate(dict(text.artifact))


def test_a_quote_of_an_accepted_text_stands_in_its_source(texts: list[LabelledText]) -> None:
    for text in (text for text in texts if text.accepted):
        source = _plain(text.request["source"])
        assert [quote for quote in _quotes(text.artifact) if _plain(quote) not in source] == [], text.id


def _plain(text: str) -> str:
    return " ".join(text.replace("’", "'").split())


def _quotes(artifact: Any) -> Iterator[str]:
    if isinstance(artifact, dict):
        yield from (value for name, value in artifact.items() if name == "quote")
        for value in artifact.values():
            yield from _quotes(value)
    elif isinstance(artifact, list):
        for item in artifact:
            yield from _quotes(item)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "maybe"}, "unknown label"),
        ({"split": "both"}, "unknown label or split"),
        ({"reasons": ["refusal"]}, "an accepted one has none"),
        ({"label": "reject", "reasons": ["nonsense"]}, "nonsense"),
        ({"kind": "report"}, "is a report in the file of hook"),
        ({"request": {}}, "either source or source_file"),
        ({"comment": "?"}, "wrong fields"),
    ],
)
def test_a_line_that_breaks_the_format_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    entry = next(entry for entry in _entries(FOLDER) if entry["kind"] == "hook") | change
    (tmp_path / "trend_summary.jsonl").touch()
    (tmp_path / "hook.jsonl").write_text(json.dumps(entry), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"hook\.jsonl, line 1: .*{message}"):
        load(tmp_path)
