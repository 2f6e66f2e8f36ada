"""Outputs to replay: those of a model for jobs of the four kinds, and the labelled texts that people wrote.

An output is a list of spans, one per decode step without drafts: the token that the step draws, and those that the
grammar forces after it. What is forced before the first draw belongs to the prompt.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from thothy_ai.bench.service.backlog import as_requests
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, TokenEvent
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.process.resident import load, start_core
from thothy_ai.engine.process.text_tools import fast_tokenizer
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.weights.model_text import LocalText
from thothy_ai.jobs import Request, registry
from thothy_ai.jobs.channels import Channel
from thothy_ai.jobs.evaluation.cases import bundled
from thothy_ai.jobs.evaluation.labelled import load as load_labelled

KINDS = "hook", "translation", "report_section", "trend_summary"
ROWS = 16
_OTHER: Channel = "podcast"  # of a second hook over the same source
_MIN_PROSE = 40  # characters
_FORCED = "quote"  # a field whose texts are enumerated: grammars force all of them but the beginning


@dataclass(frozen=True, slots=True)
class Recorded:
    """An output of a kind over a source: its prompt, and its spans."""

    kind: str
    source: str
    prompt: tuple[int, ...]
    spans: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        return sum(map(len, self.spans))


class Recorder:
    """A model on this machine, and its tokenizer."""

    def __init__(self, model: Path) -> None:
        options, text = EngineOptions(url="", model=model, device="cpu", max_rows=ROWS), LocalText()
        loaded = load(options, text)
        self.tokenizer: PreTrainedTokenizerFast = fast_tokenizer(text.loaded, loaded.name)
        self._encoder = PromptEncoder(self.tokenizer)
        self._events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        self._core: EngineCore = start_core(loaded, options, self._events.put)

    def record(self, kind: str, cases: int) -> Iterator[Recorded]:
        """The outputs for the first calls of jobs of a kind, with its prompts for large models, schemas and sampling.
        Siblings are side by side.
        """
        requests = [
            (number, job, request)
            for number, job in enumerate(jobs(kind, cases))
            for request in as_requests([job], [number])
        ]
        given: dict[str, tuple[str, tuple[int, ...], bool]] = {}
        spans: dict[str, list[tuple[int, ...]]] = {}
        for number, job, request in requests:
            [prompt] = self._encoder.encode([self._encoder.write(request)])
            if isinstance(prompt, Exception):
                raise prompt
            name = f"{kind}-{number}-{len(given)}"
            given[name], spans[name] = (job.source, prompt, request.schema is not None), []
            self._core.submit(CoreRequest(name, prompt, request.sampling, request.profile, schema=request.schema))
        left = len(given)
        while left:
            for event in self._events.get():
                if isinstance(event, TokenEvent):
                    spans[event.id].append(event.tokens)
                left -= isinstance(event, FinishedEvent)
        for name, (source, prompt, constrained) in given.items():
            forced = spans[name][0] if constrained and spans[name] else ()
            yield Recorded(kind, source, (*prompt, *forced), tuple(spans[name][constrained:]))

    def close(self) -> None:
        """Stop the core."""
        self._core.stop()
        self._core.join()


def jobs(kind: str, cases: int) -> list[Request[Any]]:
    """Jobs over the sources of the bundled cases; of hooks, a second one over each."""
    request = registry.find(kind).request
    made = [request.model_validate(dict(case.request)) for case in bundled(kind)[:cases]]
    if kind == "hook":
        made = [each for job in made for each in (job, job.model_copy(update={"channel": _OTHER}))]
    return made


def labelled(folder: Path, tokenizer: PreTrainedTokenizerFast) -> Iterator[Recorded]:
    """The prose of accepted texts, one of each kind over a source, behind the prompts of their first calls."""
    seen = set[tuple[str, str]]()

    def encoded(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    for text in load_labelled(folder):
        source = str(text.request["source"])
        if text.kind not in KINDS or not text.accepted or (text.kind, source) in seen:
            continue
        seen.add((text.kind, source))
        job = registry.find(text.kind).request.model_validate(dict(text.request))
        first, *_ = as_requests([job])
        prompt = [token for message in first.messages for token in encoded(message.content)]
        output = encoded("\n\n".join(_prose(text.artifact)))
        yield Recorded(text.kind, source, tuple(prompt), tuple((token,) for token in output))


def _prose(value: object) -> Iterator[str]:
    """The longer texts of an artifact."""
    if isinstance(value, str):
        if len(value) >= _MIN_PROSE:
            yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            if name != _FORCED:
                yield from _prose(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _prose(each)


def save(path: Path, recorded: Iterable[Recorded]) -> None:
    """Write a line of JSON for each."""
    path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in recorded))


def read(path: Path) -> list[Recorded]:
    """What `save` wrote."""
    return [
        Recorded(each["kind"], each["source"], tuple(each["prompt"]), tuple(map(tuple, each["spans"])))
        for each in map(json.loads, path.read_text().splitlines())
    ]
