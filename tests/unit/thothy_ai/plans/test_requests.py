"""What a kind's call asks for reaches the engine, and what comes of it reaches the plan, across its process too."""

from __future__ import annotations

from dataclasses import replace

from thothy_ai.engine.api import Choice, FinishReason, GenerationResult, Usage
from thothy_ai.jobs import Call, Context, End, Message, Output, Sampling
from thothy_ai.plans.advance import PlannedJob, PlanStep
from thothy_ai.plans.judge_messages import ANSWERS, TASKS, AdvanceTask
from thothy_ai.plans.requests import RequestFactory, output_of

SAMPLING = Sampling(
    90,
    0.7,
    frequency_penalty=0.2,
    presence_penalty=0.3,
    min_tokens=5,
    n=2,
    best_of=4,
    mean_logprob=True,
)
CALL = Call((Message("user", "x"),), {}, SAMPLING)
LENGTH = 4  # bytes before a message


def test_a_call_asks_for_what_its_sampling_says() -> None:
    request = RequestFactory("key", "hook", 7, "tenant").request(CALL, 0)
    sampling = request.sampling
    assert (request.n, request.best_of) == (2, 4)
    assert (sampling.frequency_penalty, sampling.presence_penalty, sampling.min_tokens) == (0.2, 0.3, 5)
    assert sampling.logprobs == 0
    assert not request.booked
    assert RequestFactory("key", "hook", 7, "tenant", booked=True).request(CALL, 0).booked
    plain = RequestFactory("key", "hook", 7, "tenant").request(Call((Message("user", "x"),), {}, Sampling(90)), 0)
    assert (plain.n, plain.best_of, plain.sampling.logprobs) == (1, None, None)


def test_calls_of_one_text_have_the_budget_if_the_engine_can_serve_it() -> None:
    requests, one = RequestFactory("key", "hook", 7, "tenant"), replace(CALL, sampling=Sampling(90))
    assert requests.request(one, 0, 2048).kv_budget == 2048
    assert requests.request(replace(one, step="verify"), 0, 2048).kv_budget is None
    assert requests.request(Call.of_pairs([("a", "b")], "check"), 0, 2048).kv_budget is None
    assert requests.request(CALL, 0, 2048).kv_budget is None
    refusing = replace(requests, can_budget=lambda tokens: tokens > 2048)
    assert [refusing.request(one, 0, tokens).kv_budget for tokens in (None, 2048, 2049)] == [None, None, 2049]


def test_a_plan_gets_all_texts() -> None:
    choices = (
        Choice("one", (1,), FinishReason.STOP, mean_logprob=-0.5),
        Choice("two", (2,), FinishReason.LENGTH, mean_logprob=-0.75),
    )
    output = output_of(GenerationResult.of("a", choices, Usage(1, 0, 2, 0.5)))
    assert output == Output("one", End.COMPLETE, -0.5, (Output("two", End.TOKEN_LIMIT, -0.75),))


def test_they_cross_to_the_process_that_runs_the_kind_and_back() -> None:
    output = Output("one", End.COMPLETE, -0.5, (Output("two", End.TOKEN_LIMIT, -0.75), Output("", End.REPETITION)))
    task = AdvanceTask(PlannedJob("hook", {}, Context(), kv_budget=0), ((output, Output("plain")),))
    assert TASKS.decode(TASKS.encode(task)[LENGTH:]) == task
    step = PlanStep((CALL,), "en", "1", 2048)
    assert ANSWERS.decode(ANSWERS.encode(step)[LENGTH:]) == step
