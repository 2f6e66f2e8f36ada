"""The jobs of `thothy bench`: a synthetic backlog, as requests that a worker would send to the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thothy_ai.bench.requests import Backlog
    from thothy_ai.engine.api import GenerationRequest


def engine_requests(wanted: Backlog) -> list[GenerationRequest]:
    """The backlog's jobs, each with a seed of its own. Kinds of `THOTHY_KINDS` may be named.

    Raises `InvalidRequestError`.
    """
    from thothy_ai.demo.backlog import backlog, house_prompt
    from thothy_ai.engine.api import Message
    from thothy_ai.engine.errors import InvalidRequestError
    from thothy_ai.jobs import registry
    from thothy_ai.settings import Settings
    from thothy_ai.worker.generations import prepare

    try:
        registry.load_extra(Settings.load().kinds)
        jobs = backlog(wanted.jobs, wanted.seed, wanted.kind)
    except registry.KindError as error:
        raise InvalidRequestError(str(error)) from error
    house = (Message("system", house_prompt(wanted.house_words)),) if wanted.house_words else ()
    prepared = [
        prepare(
            registry.kind_of(job).name, job.model_dump(mode="json"), key=f"job-{number}", seed=number, tenant="bench"
        )
        for number, job in enumerate(jobs)
    ]
    return [replace(each.generation, messages=(*house, *each.generation.messages)) for each in prepared]
