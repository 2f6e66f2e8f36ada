"""The bundled texts and the queue made of them."""

from __future__ import annotations

from collections import Counter

from thothy_ai.demo.plan import demo_jobs
from thothy_ai.demo.sources import load_sources
from thothy_ai.jobs import registry


def test_sources_are_texts_with_titles() -> None:
    sources = load_sources()
    assert len(sources) >= 8
    assert len({source.slug for source in sources}) == len({source.title for source in sources}) == len(sources)
    for source in sources:
        assert 150 <= len(source.text.split()) <= 900
        assert source.text.startswith(f"{source.title}\n\n")
        assert len(source.paragraphs) >= 4
        assert all("\n" not in paragraph for paragraph in source.paragraphs)


def test_the_plan_is_a_mixed_queue_always_the_same() -> None:
    jobs = demo_jobs()
    assert len(jobs) >= 40
    assert jobs == demo_jobs()
    assert len({job.model_dump_json() for job in jobs}) == len(jobs)
    kinds = Counter(registry.kind_of(job).name for job in jobs)
    assert set(kinds) == {"hook", "report_section", "translation", "trend_summary"}
    assert min(kinds.values()) >= 8


def test_siblings_of_each_source_share_a_key() -> None:
    keys = Counter(registry.kind_of(job).source_key(job) for job in demo_jobs())
    assert len(keys) == len(load_sources())
    assert min(keys.values()) >= 4
