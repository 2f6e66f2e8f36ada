"""The claims with which a verifier is measured: complete, and apart from their other versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from thothy_ai.jobs.evaluation.cases import CaseError
from thothy_ai.jobs.evaluation.claims import CLAIMS, labelled_texts

TEXTS = labelled_texts()


def test_half_of_the_claims_are_sound_and_none_meets_its_other_version() -> None:
    claims = [each for text in TEXTS for each in text.claims]
    assert len(claims) == 2 * len(CLAIMS.read_text(encoding="utf-8").splitlines())
    assert sum(each.sound for each in claims) == len(claims) / 2
    for text in TEXTS:
        evidence = [each.claim.evidence for each in text.claims if text.source is None]
        assert len(set(evidence)) == len(evidence)
        assert len({each.claim.text for each in text.claims}) == len(text.claims)


def test_evidence_is_there_and_in_the_source() -> None:
    for text in TEXTS:
        for each in text.claims:
            assert each.claim.evidence, each.claim.text
            assert text.source is None or each.claim.evidence[0] in text.source


def test_the_defects_of_meaning_that_no_rule_finds_are_each_there_several_times() -> None:
    sorts = [each.sort for text in TEXTS for each in text.claims if not each.sound]
    assert all(sorts.count(sort) >= 7 for sort in ("speaker", "modality", "cause", "rate"))


def test_a_line_that_lacks_a_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / "claims.jsonl"
    path.write_text('{"id": "x", "sort": "rate", "locale": "en", "original": "A.", "good": "B."}', encoding="utf-8")
    with pytest.raises(CaseError, match="line 1: 'bad' is missing"):
        labelled_texts(path)
