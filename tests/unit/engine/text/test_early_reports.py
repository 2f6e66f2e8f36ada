"""Text before a request's end: deltas, and the reports by which a worker looks at an unfinished output."""

from __future__ import annotations

import pytest

from tests.support.scripted_core import Harness
from thothy_ai.engine.api import Delta


def test_deltas_concatenate_to_the_result(harness: Harness) -> None:
    sink = harness.submit(stream=True)
    harness.accepted()
    tokens = harness.encode("Ça va? 你好，世界。 🚀🚀 done")
    for token in tokens:
        harness.core.tokens("a", token)
    harness.core.tokens("a", *harness.encode("🚀")[:1])
    harness.core.finish("a")
    *deltas, result = sink.until_end()
    assert len(deltas) > 5
    assert "".join(delta.text for delta in deltas) == result.text == "Ça va? 你好，世界。 🚀🚀 done"
    assert tuple(token for delta in deltas for token in delta.token_ids) == result.token_ids
    assert all("\ufffd" not in delta.text for delta in deltas)


def test_deltas_of_a_running_request_begin_with_its_text_so_far(harness: Harness) -> None:
    sink = harness.submit()
    harness.accepted()
    first, second = harness.encode("The garden"), harness.encode(" waits 🙂")
    for token in first:
        harness.core.tokens("a", token)
    harness.frontend.stream("a")
    assert sink.next() == Delta("a", "The garden", tuple(first))
    harness.frontend.stream("a")  # no effect: it streams already
    harness.frontend.stream("nobody")
    harness.core.tokens("a", *second)
    harness.core.finish("a")
    *deltas, result = sink.until_end()
    assert "".join(delta.text for delta in deltas) == " waits 🙂"
    assert result.text == "The garden waits 🙂"


def test_a_request_reports_early_once(harness: Harness) -> None:
    sink = harness.submit(report_after=3)
    harness.accepted()
    tokens = harness.encode("The garden waits for rain 🙂")
    for token in tokens[:2]:
        harness.core.tokens("a", token)
    harness.core.tokens("a", *tokens[2:4])
    harness.core.tokens("a", *tokens[4:])
    harness.core.finish("a")
    delta, result = sink.until_end()
    assert isinstance(delta, Delta)
    assert delta.token_ids == tuple(tokens[:4])
    assert result.text.startswith(delta.text)
    assert result.text == "The garden waits for rain 🙂"


def test_a_request_that_reports_again_does_so_each_time_it_is_half_as_long_again(harness: Harness) -> None:
    sink = harness.submit(report_after=2, report_again=True)
    harness.accepted()
    tokens = harness.encode("The garden waits for rain and the rain waits for the garden and for the bees of the town")
    for token in tokens[:16]:
        harness.core.tokens("a", token)
    harness.core.finish("a")
    *deltas, result = sink.until_end()
    assert [len(delta.token_ids) for delta in deltas if isinstance(delta, Delta)] == [2, 1, 2, 3, 4]
    assert result.text.startswith("".join(delta.text for delta in deltas if isinstance(delta, Delta)))


@pytest.mark.parametrize("fields", [{"report_after": 99}, {"report_after": 0}])
def test_without_enough_tokens_nothing_is_reported_early(harness: Harness, fields: dict[str, int]) -> None:
    sink = harness.submit(**fields)
    harness.accepted()
    harness.core.tokens("a", *harness.encode("The garden waits"))
    harness.core.finish("a")
    assert len(sink.until_end()) == 1


def test_deltas_after_an_early_report_go_on_where_it_ended(harness: Harness) -> None:
    sink = harness.submit(report_after=2)
    harness.accepted()
    tokens = harness.encode("The garden waits for rain")
    harness.core.tokens("a", *tokens[:3])
    early = sink.next()
    assert isinstance(early, Delta)
    harness.core.tokens("a", tokens[3])
    harness.frontend.stream("a")
    late = sink.next()
    assert isinstance(late, Delta)
    harness.core.tokens("a", *tokens[4:])
    harness.core.finish("a")
    *deltas, result = sink.until_end()
    deltas = [early, late, *deltas]
    assert "".join(delta.text for delta in deltas) == result.text == "The garden waits for rain"
    assert tuple(token for delta in deltas for token in delta.token_ids) == tuple(tokens)
