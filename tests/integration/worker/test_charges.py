"""Who is charged when an engine dies: by what the engine says, or by the record that it has left."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.support.fake_engine import FakeClient, FakeGeneration
from tests.support.plan_kind import Parts
from tests.support.queue_bench import Queue, RunnerBench, eventually, runner_bench
from thothy_ai.engine.api import GenerationRequest, GenerationResult
from thothy_ai.engine.api.errors import ConnectionLostError, EngineError, EngineLostError, UninvolvedError
from thothy_ai.jobs import registry

KINDS = ("tests.support.echo_kind", "tests.support.plan_kind")
UNCHARGED = ("released", "engine_lost_uninvolved")
CHARGED = ("lost", "engine_lost")


class Dying(FakeClient):
    """Its engine dies once: requests whose prompts begin with these words end so, each once."""

    def __init__(self, **errors: EngineError) -> None:
        super().__init__()
        self.errors = errors

    async def submit(self, request: GenerationRequest) -> FakeGeneration:
        generation = await super().submit(request)
        if (error := self.errors.pop(request.messages[0].content.split()[0], None)) is not None:

            async def result() -> GenerationResult:
                self.renew()
                if isinstance(error, ConnectionLostError):
                    self.on_lost()
                raise error

            generation.result = result
        return generation


def charged(queue: Queue, job_id: UUID) -> tuple[int, tuple[str, str]]:
    """Its engine deaths, and how its first attempt ended."""
    [first, *_] = queue.rows("SELECT outcome, reason FROM attempt WHERE job_id = :id ORDER BY attempt", id=job_id)
    return queue.job(job_id).engine_deaths, tuple(first)


def settled(bench: RunnerBench, queue: Queue, job_id: UUID) -> None:
    bench.settle()
    assert queue.job(job_id).state == "succeeded"
    assert queue.job(job_id).failures == 0


@pytest.mark.parametrize(
    ("error", "end"), [(UninvolvedError("no step of its"), (0, UNCHARGED)), (EngineLostError("its step"), (1, CHARGED))]
)
def test_the_engine_says_so(queue: Queue, error: EngineError, end: tuple[int, tuple[str, str]]) -> None:
    with runner_bench(queue, Dying(ok=error)) as bench:
        [job_id] = bench.work("ok")
        settled(bench, queue, job_id)
    assert charged(queue, job_id) == end


@pytest.mark.parametrize("begun", [True, False])
def test_the_record_of_an_engine_that_said_nothing_decides(queue: Queue, begun: bool) -> None:
    client = Dying(ok=ConnectionLostError("gone"))
    [job_id] = queue.enqueue("ok")
    client.begun = {f"{job_id}.1.0"} if begun else {"another"}
    with runner_bench(queue, client) as bench:
        settled(bench, queue, job_id)
    assert charged(queue, job_id) == ((1, CHARGED) if begun else (0, UNCHARGED))


def test_without_a_record_what_was_in_flight_is_charged(queue: Queue) -> None:
    with runner_bench(queue, Dying(ok=ConnectionLostError("gone"))) as bench:
        [job_id] = bench.work("ok")
        settled(bench, queue, job_id)
    assert charged(queue, job_id) == (1, CHARGED)


@pytest.mark.parametrize("involved", [True, False])
def test_one_call_that_is_involved_is_enough(queue: Queue, involved: bool) -> None:
    """Whichever of a job's calls the worker hears of first."""
    registry.load_extra(KINDS)
    other = EngineLostError("its step") if involved else UninvolvedError("not its step")
    client = Dying(ok=UninvolvedError("not its step"), okay=other)
    job_id = queue.producer.enqueue(Parts(parts=("ok one", "okay two"))).id
    with runner_bench(queue, client, kinds=KINDS) as bench:
        bench.hand_over()
        eventually(lambda: queue.outcomes(job_id))
        assert charged(queue, job_id) == ((1, CHARGED) if involved else (0, UNCHARGED))
        bench.runner.shut_down(0)
