"""Prompts that wait are tokenized together: in their order, in small batches, and nothing overtakes its submission."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from tests.support.patience import PATIENCE
from tests.support.scripted_core import Harness
from thothy_ai.engine.api import GenerationRequest, GenerationResult, Message
from thothy_ai.engine.api.backend import Delta, Failure
from thothy_ai.engine.api.inflight_log import TEXT
from thothy_ai.engine.text import frontend
from thothy_ai.engine.text.prompts import PromptEncoder, PromptText, Tokens


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[PromptText | Tokens]]:
    """What is tokenized at once."""
    found: list[list[PromptText | Tokens]] = []
    encode = PromptEncoder.encode

    def recording(encoder: PromptEncoder, prompts: Sequence[PromptText | Tokens]) -> list[Tokens | Exception]:
        if prompts:
            found.append(list(prompts))
        return encode(encoder, prompts)

    monkeypatch.setattr(PromptEncoder, "encode", recording)
    return found


@pytest.fixture
def gate(harness: Harness, batches: list[list[PromptText | Tokens]]) -> Iterator[threading.Event]:
    """The input thread waits for it before anything else: what a test submits is there at once."""
    opened = threading.Event()
    harness.frontend._put_behind(lambda: opened.wait(PATIENCE) and None)
    yield opened
    opened.set()


def test_all_that_wait_are_one_batch_in_their_order(
    harness: Harness, gate: threading.Event, batches: list[list[PromptText | Tokens]]
) -> None:
    ids = [f"r{number}" for number in range(40)]
    for number, id_ in enumerate(ids):
        harness.submit(id_, text=f"one two {number}")
    gate.set()
    accepted = [harness.accepted() for _ in ids]
    assert [request.id for request in accepted] == ids
    assert [list(request.prompt) for request in accepted] == [
        harness.encode(f"one two {number}") for number in range(40)
    ]
    assert len(batches) == 1


def test_batches_are_bounded_and_a_long_prompt_is_one_of_its_own(
    harness: Harness,
    gate: threading.Event,
    batches: list[list[PromptText | Tokens]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frontend, "_BATCH_CHARACTERS", 100)
    texts = ["x" * 40] * 3 + ["long" * 70] + ["y" * 10] * (TEXT.slots + 5)
    for number, text in enumerate(texts):
        harness.submit(f"r{number}", text=text)
    for _ in range(TEXT.slots + 5):
        harness.submit(f"t{_}", token_ids=(1, 2))
    gate.set()
    for _ in range(len(texts) + TEXT.slots + 5):
        harness.accepted()
    sizes = [[len(prompt.text) for prompt in batch if isinstance(prompt, PromptText)] for batch in batches]
    assert all(sum(batch) <= 100 or len(batch) == 1 for batch in sizes)
    assert all(len(batch) <= TEXT.slots for batch in batches)
    assert sizes[:3] == [[40, 40], [40], [280]]


def test_what_concerns_a_request_stays_behind_its_submission(
    harness: Harness, gate: threading.Event, batches: list[list[PromptText | Tokens]]
) -> None:
    """Neither an abort nor the wish for deltas waits for the end of a batch, or comes before it."""
    harness.core.aborted = harness.core.submitted  # type: ignore[assignment]  # one log of both
    first, second = harness.submit("a"), harness.submit("b")
    harness.frontend.stream("b")
    harness.submit("c")
    harness.frontend.abort("c")
    harness.submit("d")
    gate.set()
    log = [harness.core.submitted.get(timeout=PATIENCE) for _ in range(5)]
    assert [each[0] if isinstance(each, tuple) else each.id for each in log] == ["a", "b", "c", "c", "d"]
    harness.core.tokens("a", *harness.encode("one"))
    harness.core.tokens("b", *harness.encode("one"))
    harness.core.finish("a")
    assert isinstance(first.next(), GenerationResult)
    assert isinstance(second.next(), Delta)


def test_a_bad_request_of_a_batch_fails_alone(harness: Harness, gate: threading.Event) -> None:
    sinks = [
        harness.submit("a"),
        harness.submit("bad", messages=(Message("user", None),)),  # type: ignore[arg-type]
        harness.submit("long", text="garden " * 200),
        harness.submit("b"),
    ]
    gate.set()
    assert [harness.accepted().id for _ in range(2)] == ["a", "b"]
    for sink in sinks[1:3]:
        assert isinstance(sink.next(), Failure)
    assert harness.frontend.stats().text.requests_refused == 2


def test_what_is_tokenized_counts_as_begun(
    harness: Harness, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a batch, for as long as it is tokenized: an engine that dies of a prompt cannot say of which."""
    begun: list[set[str]] = []
    encode = PromptEncoder.encode
    entered = harness.frontend._admissions

    def recording(encoder: PromptEncoder, prompts: Sequence[PromptText | Tokens]) -> list[Tokens | Exception]:
        begun.append(set(entered._slots))
        return encode(encoder, prompts)

    monkeypatch.setattr(PromptEncoder, "encode", recording)
    for id_ in ("a", "b"):
        harness.submit(id_)
    harness.frontend.submit(GenerationRequest("none"), lambda _: None)
    gate.set()
    assert {harness.accepted().id, harness.accepted().id} == {"a", "b"}
    assert {"a", "b"} in begun
    idle = threading.Event()
    harness.frontend._put_behind(idle.set)
    assert idle.wait(PATIENCE)
    assert not entered._slots
