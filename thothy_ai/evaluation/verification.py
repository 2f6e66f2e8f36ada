"""Measures a verifier: sends labelled claims through an engine, and counts how often its doubts are right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any
from uuid import uuid4

from thothy_ai.embedded.endpoint import Endpoint
from thothy_ai.engine.api import EngineInfo, Usage
from thothy_ai.engine.serving.client import EngineClient
from thothy_ai.evaluation.connection import connected
from thothy_ai.jobs.api.plan import Calls, Outputs, T
from thothy_ai.jobs.api.verdict import VerifiedClaim
from thothy_ai.jobs.evaluation.claims import ClaimSet, LabelledClaim
from thothy_ai.jobs.plans.verification import UNREAD, doubt, verify
from thothy_ai.plans.context import Doubts, VerifierModel, context_of, verifier_of
from thothy_ai.plans.follow import side_by_side
from thothy_ai.plans.requests import RequestFactory
from thothy_ai.plans.running_call import RunningCall, total

AT_ONCE = 16  # texts in flight
PATIENCE_SECONDS = 600.0  # per text
NATURAL = 0.05  # the share of bad claims in summaries by models of 7 to 70 billion parameters, in published evaluations


@dataclass(frozen=True, slots=True)
class VerifiedLabel:
    """A labelled claim, and the label that the verifier gave it."""

    labelled: LabelledClaim
    label: str
    doubted: bool


@dataclass(frozen=True)
class VerifierResult:
    """A verifier's labels of all claims, and the figures that follow from them."""

    verifier: VerifierModel
    device: str
    usage: Usage
    labels: tuple[VerifiedLabel, ...]

    @cached_property
    def bad(self) -> int:
        """The number of claims with a defect."""
        return sum(not each.labelled.sound for each in self.labels)

    @cached_property
    def sound(self) -> int:
        """The number of claims without a defect."""
        return len(self.labels) - self.bad

    @cached_property
    def found(self) -> int:
        """The number of bad claims that the verifier doubts."""
        return sum(each.doubted and not each.labelled.sound for each in self.labels)

    @cached_property
    def false_alarms(self) -> int:
        """The number of sound claims that the verifier doubts."""
        return sum(each.doubted and each.labelled.sound for each in self.labels)

    @property
    def unread(self) -> int:
        """The number of claims whose answers could not be read."""
        return sum(each.label == UNREAD for each in self.labels)

    @property
    def precision(self) -> float | None:
        """The share of right doubts on these claims, half of which are bad; None if there are no doubts."""
        doubts = self.found + self.false_alarms
        return self.found / doubts if doubts else None

    @property
    def doubts(self) -> Doubts:
        """The doubts that are recorded for the verifier."""
        return Doubts(self.found, self.false_alarms)

    @property
    def recall(self) -> float:
        """The share of bad claims that the verifier doubts."""
        return self.found / self.bad

    @property
    def natural_precision(self) -> float | None:
        """The precision if one claim in twenty is bad; None if there are no doubts."""
        found = NATURAL * self.recall
        doubted = found + (1 - NATURAL) * self.false_alarms / self.sound
        return found / doubted if doubted else None

    def of_sort(self, sort: str) -> VerifierResult:
        """The result for the claims with one sort of defect."""
        return VerifierResult(
            self.verifier, self.device, self.usage, tuple(each for each in self.labels if each.labelled.sort == sort)
        )

    @property
    def sorts(self) -> list[str]:
        """The sorts of defect, in order of appearance."""
        return list(dict.fromkeys(each.labelled.sort for each in self.labels))

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {
            "verifier": self.verifier.name,
            "weights": self.verifier.weights,
            "device": self.device,
            "claims": len(self.labels),
            "compute_seconds": self.usage.compute_seconds,
            "natural_precision": self.natural_precision,
            "weight": self.doubts.weight,
            **self._figures(),
            "sorts": {sort: self.of_sort(sort)._figures() for sort in self.sorts},
        }

    def _figures(self) -> dict[str, Any]:
        return {
            "bad": self.bad,
            "found": self.found,
            "sound": self.sound,
            "false_alarms": self.false_alarms,
            "unread": self.unread,
            "precision": self.precision,
            "recall": self.recall,
        }


async def measure(endpoint: Endpoint, texts: Iterable[ClaimSet], on_ended: Callable[[], None]) -> VerifierResult:
    """Have the claims of each text labelled, as a plan does. Claims of a text not answered in time stay unread.

    Raises `EngineError`.
    """
    places = asyncio.Semaphore(AT_ONCE)
    calls: list[RunningCall] = []

    async def labels(client: EngineClient, info: EngineInfo, text: ClaimSet) -> list[VerifiedLabel]:
        context = context_of(info)
        async with places:
            plan = verify([each.claim for each in text.claims], context, text.source)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    found = await _followed(plan, client, calls)
            except TimeoutError:
                found = tuple(VerifiedClaim(each.claim.text, UNREAD, "") for each in text.claims)
        on_ended()
        doubts = [doubt(each.claim, label, "", context) for each, label in zip(text.claims, found, strict=True)]
        return [
            VerifiedLabel(each, label.label, doubted is not None)
            for each, label, doubted in zip(text.claims, found, doubts, strict=True)
        ]

    async with connected(endpoint) as (client, info):
        made = await asyncio.gather(*(labels(client, info, text) for text in texts))
    every = tuple(label for of_text in made for label in of_text)
    return VerifierResult(verifier_of(info), info.device, total(call.usage for call in calls), every)


async def _followed(plan: Generator[Calls, Outputs, T], client: EngineClient, log: list[RunningCall]) -> T:
    """Follow a part of a plan that returns something other than a verdict."""
    requests, numbers = RequestFactory(f"eval-{uuid4()}", "verification", 1, "eval"), count()
    try:
        asked = next(plan)
        while True:
            sent: list[RunningCall] = []
            try:
                for call in asked:
                    request = requests.request(call, next(numbers))
                    sent.append(RunningCall(call, request, await client.submit(request)))
                outputs = await side_by_side(sent)
            except BaseException:
                await asyncio.gather(*(call.abort() for call in sent))
                raise
            finally:
                log += sent
            asked = plan.send(outputs)
    except StopIteration as stop:
        found: T = stop.value
        return found
