"""The synthetic backlog: any number of valid jobs, in fixed shares, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from thothy_ai.demo.backlog import SHARES, backlog, house_prompt
from thothy_ai.jobs import Request, Translation, registry
from thothy_ai.jobs.registry import KindError


def kinds(jobs: list[Request]) -> Counter[str]:
    return Counter(registry.kind_of(job).name for job in jobs)


def test_the_shares_are_exact_and_the_order_is_mixed() -> None:
    jobs = backlog(200)
    assert kinds(jobs) == {name: 2 * share for name, share in SHARES.items()}
    assert len(kinds(jobs[:20])) == 4
    assert sum(kinds(backlog(37)).values()) == 37


def test_a_seed_gives_the_same_jobs_and_another_seed_gives_others() -> None:
    assert backlog(20, seed=3) == backlog(20, seed=3)
    assert backlog(20, seed=3) != backlog(20, seed=4)


def test_no_two_jobs_share_a_source_and_lengths_are_spread() -> None:
    jobs = backlog(300)
    sources = [job.model_dump()["source"] for job in jobs]
    assert len(set(sources)) == len(sources)
    words = sorted(len(source.split()) for source in sources)
    assert words[0] < 80
    assert 2_000 < words[-1] <= 2_200


def test_a_third_of_the_translations_is_from_another_language() -> None:
    jobs = [job for job in backlog(300, kind="translation") if isinstance(job, Translation)]
    assert len(jobs) == 300
    foreign = [job for job in jobs if job.passage is None]
    assert 70 < len(foreign) < 130
    assert all(job.target_locale == "en" for job in foreign)
    assert any(ord(character) > 0x3000 for job in foreign for character in job.source)


def test_the_house_prompt_has_so_many_words_and_is_always_the_same() -> None:
    assert len(house_prompt(300).split()) == pytest.approx(300, abs=2)
    assert house_prompt(300) == house_prompt(300)
    assert house_prompt(0) == ""


KIND = """
from typing import Annotated
from thothy_ai.jobs import Artifact, JobKind, Message, OneCall, Sampling
from thothy_ai.jobs.api.requests import SourceRequest
from thothy_ai.jobs.schema import prose

class PageArtifact(Artifact):
    title: Annotated[str, prose(3, 20)]
    body: Annotated[str, prose(3, 60)]

class Page(SourceRequest[PageArtifact]):
    product: {type}

KIND = JobKind(
    name="{name}", request=Page, artifact=PageArtifact,
    plan=OneCall(
        artifact=PageArtifact,
        prompt=lambda request, _: (Message("user", request.source + str(request.product)),),
        sampling=lambda _: Sampling(max_tokens=60),
        checks=lambda *_: (),
    ),
    locale=lambda _: "en", source=lambda request: request.source,
)
"""


@pytest.fixture
def extra_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.jobs.registry._extra", {})


@pytest.mark.usefixtures("extra_kinds")
def test_a_user_s_kind_gets_a_source_and_short_phrases(tmp_path: Path) -> None:
    (tmp_path / "pages.py").write_text(KIND.format(type="str", name="page"))
    registry.load_extra([str(tmp_path / "pages.py")])
    (job,) = backlog(1, kind="page")
    made = job.model_dump()
    assert len(made["source"].split()) >= 60
    assert len(made["product"].split()) == 6


@pytest.mark.usefixtures("extra_kinds")
def test_what_cannot_be_made_up_is_said(tmp_path: Path) -> None:
    (tmp_path / "numbers.py").write_text(KIND.format(type="int", name="numbers"))
    registry.load_extra([str(tmp_path / "numbers.py")])
    with pytest.raises(KindError, match="'numbers' cannot be made up: product"):
        backlog(1, kind="numbers")
    with pytest.raises(KindError, match="unknown kind 'hok'"):
        backlog(1, kind="hok")
