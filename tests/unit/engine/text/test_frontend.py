"""The frontend over a core that follows a script: text, deltas, stop strings, refusals, and nothing that kills it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from transformers import PreTrainedTokenizerFast

from thothy_ai.engine.api import (
    CoreStats,
    Delta,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
    SchedulerStats,
    TokenLogprob,
    Usage,
)
from thothy_ai.engine.backend import Failure, Output
from thothy_ai.engine.core_api import CoreRequest, FinishedEvent, OnEvents, RefusedEvent, TokenEvent
from thothy_ai.engine.errors import (
    EngineError,
    EngineNotAcceptingError,
    EngineStoppedError,
    GrammarError,
    InvalidRequestError,
    PromptTooLongError,
)
from thothy_ai.engine.text.bounds import token_bound
from thothy_ai.engine.text.detokenizer import StopStrings
from thothy_ai.engine.text.frontend import Frontend, TextTools
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.stream import Stream
from thothy_ai.engine.text.token_bytes import TokenBytes

PATIENCE = 60


@dataclass
class ScriptedCore:
    """Notes what it is told; the test says what it answers."""

    on_events: OnEvents
    refusal: EngineError | None = None
    submitted: queue.SimpleQueue[CoreRequest] = field(default_factory=queue.SimpleQueue)
    aborted: queue.SimpleQueue[tuple[str, FinishReason]] = field(default_factory=queue.SimpleQueue)
    stopped: threading.Event = field(default_factory=threading.Event)

    def submit(self, request: CoreRequest) -> None:
        if self.refusal is not None:
            self.on_events([RefusedEvent(request.id, self.refusal)])
            return
        self.submitted.put(request)

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        self.aborted.put((request_id, reason))

    def stats(self) -> EngineStats:
        return EngineStats(SchedulerStats(running=3), core=CoreStats(requests_refused=1))

    def info(self) -> EngineInfo:
        return EngineInfo("s", "m", "cpu", "float32", 16, 10, 100, 0.0)

    def stop(self) -> None:
        self.stopped.set()

    def tokens(self, id_: str, *tokens: int) -> None:
        self.on_events([TokenEvent(id_, tokens)])

    def finish(self, id_: str, reason: FinishReason = FinishReason.STOP, error: EngineError | None = None) -> None:
        self.on_events([FinishedEvent(id_, reason, Usage(7, 2, 99, 0.5, 1), error)])


class Ears:
    """A sink that a test can wait on."""

    def __init__(self) -> None:
        self._heard: queue.SimpleQueue[Output] = queue.SimpleQueue()

    def __call__(self, outputs: list[Output]) -> None:
        for output in outputs:
            self._heard.put(output)

    def next(self) -> Output:
        return self._heard.get(timeout=PATIENCE)

    def until_end(self) -> list[Output]:
        heard = [self.next()]
        while isinstance(heard[-1], Delta):
            heard.append(self.next())
        return heard

    def silent(self) -> bool:
        return self._heard.empty()


@dataclass
class Stage:
    frontend: Frontend
    core: ScriptedCore
    encode: Callable[[str], list[int]]

    def submit(self, id_: str = "a", *, ears: Ears | None = None, **fields: object) -> Ears:
        ears = ears or Ears()
        fields = fields if fields.keys() & {"messages", "token_ids", "text"} else {"text": "hello", **fields}
        self.frontend.submit(GenerationRequest(id_, **fields), ears)
        return ears

    def accepted(self) -> CoreRequest:
        return self.core.submitted.get(timeout=PATIENCE)


@pytest.fixture
def stage(tokenizer: PreTrainedTokenizerFast, vocabulary: TokenBytes) -> Iterator[Stage]:
    cores: list[ScriptedCore] = []

    def make_core(on_events: OnEvents) -> ScriptedCore:
        cores.append(ScriptedCore(on_events))
        return cores[0]

    bound = token_bound(tokenizer.backend_tokenizer)
    frontend = Frontend(TextTools(PromptEncoder(tokenizer), vocabulary, bound), make_core)
    yield Stage(frontend, cores[0], lambda text: tokenizer.encode(text, add_special_tokens=False))
    frontend.stop()


def test_a_request_becomes_tokens_and_tokens_become_a_result(stage: Stage) -> None:
    sampling = SamplingParams(max_tokens=9, temperature=0.5)
    ears = stage.submit(
        messages=(Message("user", "hello"),), sampling=sampling, profile="hook", salt="tenant", priority=3, deadline=5.0
    )
    request = stage.accepted()
    assert (request.id, request.sampling, request.profile, request.salt) == ("a", sampling, "hook", "tenant")
    assert (request.priority, request.deadline) == (3, 5.0)
    assert request.schema is None
    tokens = stage.encode("The garden 🙂 waits")
    for token in tokens:
        stage.core.tokens("a", token)
    stage.core.finish("a", FinishReason.LENGTH)
    assert ears.next() == GenerationResult(
        "a", "The garden 🙂 waits", tuple(tokens), FinishReason.LENGTH, Usage(7, 2, len(tokens), 0.5, 1)
    )


def test_deltas_concatenate_to_the_result(stage: Stage) -> None:
    ears = stage.submit(stream=True)
    stage.accepted()
    tokens = stage.encode("Ça va? 你好，世界。 🚀🚀 done")
    for token in tokens:
        stage.core.tokens("a", token)
    stage.core.tokens("a", *stage.encode("🚀")[:1])
    stage.core.finish("a")
    *deltas, result = ears.until_end()
    assert len(deltas) > 5
    assert "".join(delta.text for delta in deltas) == result.text == "Ça va? 你好，世界。 🚀🚀 done"
    assert tuple(token for delta in deltas for token in delta.token_ids) == result.token_ids
    assert all("\ufffd" not in delta.text for delta in deltas)


def test_deltas_of_a_running_request_begin_with_its_text_so_far(stage: Stage) -> None:
    ears = stage.submit()
    stage.accepted()
    first, second = stage.encode("The garden"), stage.encode(" waits 🙂")
    for token in first:
        stage.core.tokens("a", token)
    stage.frontend.stream("a")
    assert ears.next() == Delta("a", "The garden", tuple(first))
    stage.frontend.stream("a")  # no effect: it streams already
    stage.frontend.stream("nobody")
    stage.core.tokens("a", *second)
    stage.core.finish("a")
    *deltas, result = ears.until_end()
    assert "".join(delta.text for delta in deltas) == " waits 🙂"
    assert result.text == "The garden waits 🙂"


def test_a_request_reports_early_once(stage: Stage) -> None:
    ears = stage.submit(report_after=3)
    stage.accepted()
    tokens = stage.encode("The garden waits for rain 🙂")
    for token in tokens[:2]:
        stage.core.tokens("a", token)
    stage.core.tokens("a", *tokens[2:4])
    stage.core.tokens("a", *tokens[4:])
    stage.core.finish("a")
    delta, result = ears.until_end()
    assert isinstance(delta, Delta)
    assert delta.token_ids == tuple(tokens[:4])
    assert result.text.startswith(delta.text)
    assert result.text == "The garden waits for rain 🙂"


def test_a_request_that_reports_again_does_so_each_time_it_is_half_as_long_again(stage: Stage) -> None:
    ears = stage.submit(report_after=2, report_again=True)
    stage.accepted()
    tokens = stage.encode("The garden waits for rain and the rain waits for the garden and for the bees of the town")
    for token in tokens[:16]:
        stage.core.tokens("a", token)
    stage.core.finish("a")
    *deltas, result = ears.until_end()
    assert [len(delta.token_ids) for delta in deltas if isinstance(delta, Delta)] == [2, 1, 2, 3, 4]
    assert result.text.startswith("".join(delta.text for delta in deltas if isinstance(delta, Delta)))


@pytest.mark.parametrize("fields", [{"report_after": 99}, {"report_after": 0}])
def test_without_enough_tokens_nothing_is_reported_early(stage: Stage, fields: dict[str, int]) -> None:
    ears = stage.submit(**fields)
    stage.accepted()
    stage.core.tokens("a", *stage.encode("The garden waits"))
    stage.core.finish("a")
    assert len(ears.until_end()) == 1


def test_deltas_after_an_early_report_go_on_where_it_ended(stage: Stage) -> None:
    ears = stage.submit(report_after=2)
    stage.accepted()
    tokens = stage.encode("The garden waits for rain")
    stage.core.tokens("a", *tokens[:3])
    early = ears.next()
    assert isinstance(early, Delta)
    stage.core.tokens("a", tokens[3])
    stage.frontend.stream("a")
    late = ears.next()
    assert isinstance(late, Delta)
    stage.core.tokens("a", *tokens[4:])
    stage.core.finish("a")
    *deltas, result = ears.until_end()
    deltas = [early, late, *deltas]
    assert "".join(delta.text for delta in deltas) == result.text == "The garden waits for rain"
    assert tuple(token for delta in deltas for token in delta.token_ids) == tuple(tokens)


def repetitive(stage: Stage, count: int) -> list[int]:
    return stage.encode("The kettle sings and the garden waits for rain. ") * count


@pytest.mark.parametrize("fields", [{"schema": "{}"}, {"stop_repetition": True}], ids=str)
def test_an_output_that_repeats_itself_is_stopped_and_kept(stage: Stage, fields: dict[str, object]) -> None:
    ears = stage.submit(sampling=SamplingParams(max_tokens=500), **fields)
    stage.accepted()
    tokens = repetitive(stage, 5)
    for token in tokens:
        stage.core.tokens("a", token)
    assert stage.core.aborted.get(timeout=PATIENCE) == ("a", FinishReason.REPETITION)
    stage.core.finish("a", FinishReason.REPETITION)
    (result,) = ears.until_end()
    assert isinstance(result, GenerationResult)
    assert result.finish_reason is FinishReason.REPETITION
    kept = result.usage.output_tokens
    assert len(tokens) * 3 / 5 <= kept < len(tokens) * 3 / 5 + 4
    assert result.text.startswith("The kettle sings and the garden")
    text = stage.frontend.stats().text
    assert (text.repetitions, text.saved_tokens) == (1, 500 - kept)
    assert stage.core.aborted.empty()


@pytest.mark.parametrize("fields", [{}, {"schema": "{}", "stop_repetition": False}], ids=str)
def test_repetition_is_no_reason_where_it_is_allowed(stage: Stage, fields: dict[str, object]) -> None:
    ears = stage.submit(**fields)
    stage.accepted()
    for token in repetitive(stage, 5):
        stage.core.tokens("a", token)
    stage.core.finish("a", FinishReason.LENGTH)
    (result,) = ears.until_end()
    assert isinstance(result, GenerationResult)
    assert result.finish_reason is FinishReason.LENGTH
    assert stage.core.aborted.empty()


def test_one_call_a_step_for_all_requests_of_a_sink(stage: Stage) -> None:
    calls: queue.SimpleQueue[list[Output]] = queue.SimpleQueue()
    for id_ in ("a", "b"):
        stage.frontend.submit(GenerationRequest(id_, text="x", stream=True), calls.put)
        stage.accepted()
    word = tuple(stage.encode("one"))
    stage.core.on_events([TokenEvent("a", word), TokenEvent("b", word), TokenEvent("nobody", word)])
    assert [output.id for output in calls.get(timeout=PATIENCE)] == ["a", "b"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_text_and_cuts_what_came_meanwhile(stage: Stage, *, stream: bool) -> None:
    ears = stage.submit(stream=stream, sampling=SamplingParams(stop=("waits for", "zzz")))
    stage.accepted()
    tokens = stage.encode("the garden waits for rain")
    stage.core.tokens("a", *tokens)
    assert stage.core.aborted.get(timeout=PATIENCE) == ("a", FinishReason.STOP)
    stage.core.tokens("a", *stage.encode("more"))
    stage.core.finish("a", FinishReason.LENGTH)
    *deltas, result = ears.until_end()
    assert result.text == "the garden "
    assert result.finish_reason is FinishReason.STOP
    assert result.usage.output_tokens == len(result.token_ids) < len(tokens)
    assert result.usage.compute_seconds == 0.5
    assert "".join(delta.text for delta in deltas) == ("the garden " if stream else "")
    assert stage.core.aborted.empty()


def test_what_a_stop_string_held_back_comes_out_at_the_end(stage: Stage) -> None:
    ears = stage.submit(stream=True, sampling=SamplingParams(stop=("rain!",)))
    stage.accepted()
    stage.core.tokens("a", *stage.encode("for rain"))
    stage.core.finish("a")
    *deltas, result = ears.until_end()
    assert result.text == "for rain" == "".join(delta.text for delta in deltas)
    assert tuple(token for delta in deltas for token in delta.token_ids) == result.token_ids


def test_a_schema_is_the_core_s_to_compile(stage: Stage) -> None:
    stage.submit(schema="{")
    request = stage.accepted()
    assert (request.schema, request.grammar) == ("{", None)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"text": "\ud800"}, InvalidRequestError),
        ({"text": "garden " * 200}, PromptTooLongError),
        ({"messages": (Message("user", "garden " * 200),)}, PromptTooLongError),
        ({"token_ids": (1,) * 100}, PromptTooLongError),
        ({"messages": (Message("user", ""),) * 100}, PromptTooLongError),
        ({"messages": (Message("narrator", "x"),)}, InvalidRequestError),
        ({"messages": (Message("user", None),)}, InvalidRequestError),
    ],
)
def test_a_bad_request_fails_alone_and_is_counted(
    stage: Stage, fields: dict[str, object], error: type[EngineError]
) -> None:
    ears = stage.submit("bad", **fields)
    failure = ears.next()
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, error)
    assert stage.frontend.stats().requests_refused == 2
    assert (stage.frontend.stats().text.error_codes, stage.frontend.stats().text.error_counts) == ((error.code,), (1,))
    stage.submit("good")
    assert stage.accepted().id == "good"


@pytest.mark.parametrize("refusal", [PromptTooLongError("long"), EngineNotAcceptingError("no")])
def test_the_cores_refusals_come_through_the_sink(stage: Stage, refusal: EngineError) -> None:
    stage.core.refusal = refusal
    assert stage.submit().next() == Failure("a", refusal)
    assert stage.frontend.stats().text.error_codes == (refusal.code,)
    assert stage.frontend.stats().requests_refused == 1, "the core counts its own"


def test_an_error_of_a_running_request_is_its_end(stage: Stage) -> None:
    ears = stage.submit()
    stage.accepted()
    stage.core.tokens("a", *stage.encode("one"))
    error = GrammarError("grew too complex")
    stage.core.finish("a", FinishReason.ABORTED, error)
    tokens = len(stage.encode("one"))
    assert ears.next() == Failure("a", error, Usage(7, 2, tokens, 0.5, 1))


def test_a_stream_that_fails_takes_nothing_of_its_step_along(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take = Stream.take

    def broken(stream: Stream, tokens: tuple[int, ...], logprobs: None) -> list[Output]:
        if stream.request.id == "broken":
            raise ZeroDivisionError("at the third character")
        return take(stream, tokens, logprobs)

    monkeypatch.setattr(Stream, "take", broken)
    bad, good = stage.submit("broken"), stage.submit("good")
    for _ in range(2):
        stage.accepted()
    word = tuple(stage.encode("one"))
    stage.core.on_events([TokenEvent("broken", word), TokenEvent("good", word)])
    assert stage.core.aborted.get(timeout=PATIENCE) == ("broken", FinishReason.ABORTED)
    stage.core.on_events([TokenEvent("broken", word), TokenEvent("good", word)])
    stage.core.finish("good")
    assert good.next().text == "oneone"
    assert bad.silent(), "its usage is not known yet"
    stage.core.finish("broken", FinishReason.ABORTED)
    failure = bad.next()
    assert isinstance(failure, Failure)
    assert "at the third character" in str(failure.error)
    assert failure.usage.compute_seconds == 0.5
    assert "broken" in caplog.text
    stage.submit("broken")
    assert stage.accepted().id == "broken", "the id is free again"


def test_a_stream_that_fails_at_its_end_is_a_failure(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(stops: StopStrings) -> str:
        raise ZeroDivisionError

    ears = stage.submit()
    stage.accepted()
    monkeypatch.setattr(StopStrings, "flush", broken)
    stage.core.finish("a")
    failure = ears.next()
    assert isinstance(failure, Failure)
    assert failure.usage.compute_seconds == 0.5


def test_the_text_of_the_minimum_has_no_stop_strings(stage: Stage) -> None:
    """Neither whole ones nor the beginnings of some: they are looked for in what follows."""
    sampling = SamplingParams(stop=("one", "two three"), min_tokens=3)
    ears = stage.submit(sampling=sampling)
    stage.accepted()
    for token in stage.encode("one two three one")[:3]:
        stage.core.tokens("a", token)
    rest = stage.encode("one two three one")[3:]
    stage.core.tokens("a", *rest)
    assert stage.core.aborted.get(timeout=PATIENCE) == ("a", FinishReason.STOP)
    stage.core.finish("a")
    result = ears.next()
    assert isinstance(result, GenerationResult)
    early = len(stage.encode("one two three one")[:3])
    assert result.text.startswith("one")
    assert len(result.token_ids) > early


def test_log_probabilities_end_with_the_tokens(stage: Stage) -> None:
    """A token that was forced has none; those after a stop string are dropped with it."""
    ears = stage.submit(sampling=SamplingParams(stop=("three",), logprobs=1))
    stage.accepted()
    tokens = stage.encode("one two three one")
    listed = [None, *(TokenLogprob(-0.5 * place, (7,), (0.0,)) for place in range(1, len(tokens)))]
    stage.core.on_events([TokenEvent("a", tuple(tokens[:1]))])
    stage.core.on_events([TokenEvent("a", tuple(tokens[1:]), tuple(listed[1:]))])
    stage.core.finish("a")
    result = ears.next()
    assert isinstance(result, GenerationResult)
    assert list(result.logprobs) == listed[: len(result.token_ids)]
    assert len(result.token_ids) < len(tokens)
    drawn = [each.logprob for each in result.logprobs if each]
    assert result.mean_logprob == sum(drawn) / len(drawn)


def test_an_id_is_taken_until_its_request_ends(stage: Stage) -> None:
    first = stage.submit()
    second = stage.submit().next()
    assert isinstance(second, Failure)
    assert "in flight" in str(second.error)
    stage.accepted()
    stage.core.finish("a")
    assert isinstance(first.next(), GenerationResult)
    stage.submit()
    assert stage.accepted().id == "a"


def test_an_abort_follows_its_submission(stage: Stage) -> None:
    stage.submit()
    stage.frontend.abort("a")
    assert stage.core.aborted.get(timeout=PATIENCE) == ("a", FinishReason.ABORTED)
    assert stage.accepted().id == "a"


def test_a_sink_that_raises_harms_nobody(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    def broken(outputs: list[Output]) -> None:
        raise ValueError("deaf")

    stage.frontend.submit(GenerationRequest("broken", text="x"), broken)
    ears = stage.submit("fine")
    for _ in range(2):
        stage.accepted()
    stage.core.on_events([FinishedEvent(id_, FinishReason.STOP, Usage(1, 0, 0, 0.0)) for id_ in ("broken", "fine")])
    assert isinstance(ears.next(), GenerationResult)
    assert "broken" in caplog.text


def test_events_of_unknown_requests_are_ignored(stage: Stage) -> None:
    stage.core.tokens("ghost", 5)
    stage.core.finish("ghost")
    ears = stage.submit()
    stage.accepted()
    stage.core.finish("a")
    assert isinstance(ears.next(), GenerationResult)


def test_stop_ends_the_core_and_refuses_what_comes_later(stage: Stage) -> None:
    ears = stage.submit()
    stage.accepted()
    stage.frontend.stop()
    late = stage.submit("late").next()
    assert isinstance(late, Failure)
    assert isinstance(late.error, EngineStoppedError)
    lost = EngineStoppedError("stopped")
    stage.core.finish("a", FinishReason.ABORTED, lost)
    assert ears.next() == Failure("a", lost, Usage(7, 2, 0, 0.5, 1))
    assert stage.core.stopped.wait(PATIENCE)


def test_the_rest_is_the_cores(stage: Stage) -> None:
    assert stage.frontend.info().model == "m"
    assert stage.frontend.stats().scheduler.running == 3
