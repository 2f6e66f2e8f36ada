"""Outputs to replay: those of a model for jobs of the four kinds, and the labelled texts that people wrote.

People's texts come twice: as the JSON that a model writes under the kind's schema, and their prose alone, without one.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from benchmarks.validators import FOLDER as LABELLED
from thothy_ai.bench.service.backlog import as_requests
from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, TokenEvent
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.process.resident import load, start_core
from thothy_ai.engine.text.model_text import LocalText, core_tokenizer
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.tools import fast_tokenizer
from thothy_ai.jobs import Request, registry
from thothy_ai.jobs.channels import Channel
from thothy_ai.jobs.evaluation.cases import bundled
from thothy_ai.jobs.evaluation.labelled import LabelledText
from thothy_ai.jobs.evaluation.labelled import load as load_labelled

KINDS = "hook", "translation", "report_section", "trend_summary"
ROWS = 16
_OTHER: Channel = "podcast"  # of a second hook over the same source
_MIN_PROSE = 40  # characters
_COPIED = "quote"  # a field whose texts are enumerated: grammars force all of them but the beginning


@dataclass(frozen=True, slots=True)
class Recorded:
    """An output of a kind over a source: its prompt, its tokens, and the schema under which it is written, if any."""

    kind: str
    source: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    max_tokens: int
    schema: str | None


class Recorder:
    """A model on this machine, and its tokenizer."""

    def __init__(self, model: Path) -> None:
        options, text = EngineOptions(url="", model=model, device="cpu", max_rows=ROWS), LocalText()
        loaded = load(options, text)
        self.tokenizer: PreTrainedTokenizerFast = fast_tokenizer(text.loaded, loaded.name)
        self._encoder = PromptEncoder(self.tokenizer)
        self._events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        self._core: EngineCore = start_core(loaded, options, self._events.put)
        self._grammars = GrammarCompiler(loaded.tokenizer, loaded.config.vocab_size, loaded.config.eos_token_ids)

    def record(self, kind: str, cases: int) -> Iterator[Recorded]:
        """The outputs for the first calls of jobs of a kind, with its prompts for large models, schemas and sampling.
        Siblings are side by side.
        """
        given, outputs = dict[str, tuple[str, tuple[int, ...], GenerationRequest]](), dict[str, list[int]]()
        for number, job in enumerate(jobs(kind, cases)):
            for request in as_requests([job], [number]):
                name, prompt = f"{kind}-{len(given)}", self._prompt(request)
                given[name], outputs[name] = (job.source, prompt, request), []
                self._core.submit(CoreRequest(name, prompt, request.sampling, request.profile, schema=request.schema))
        left = len(given)
        while left:
            for event in self._events.get():
                if isinstance(event, TokenEvent):
                    outputs[event.id] += event.tokens
                left -= isinstance(event, FinishedEvent)
        for name, (source, prompt, request) in given.items():
            yield Recorded(kind, source, prompt, tuple(outputs[name]), request.sampling.max_tokens, request.schema)

    def save(self, folder: Path, cases: int) -> None:
        """Write a folder that `Recordings` reads."""
        self.tokenizer.save_pretrained(folder)
        save(folder, "model", (each for kind in KINDS for each in self.record(kind, cases)))
        save(folder, "people", self.labelled(LABELLED))

    def labelled(self, folder: Path) -> Iterator[Recorded]:
        """Accepted texts, one of each kind over a source, behind the prompts of their jobs' first calls."""
        seen = set[tuple[str, str]]()
        for text in load_labelled(folder):
            source = str(text.request["source"])
            if text.kind in KINDS and text.accepted and (text.kind, source) not in seen:
                seen.add((text.kind, source))
                yield from self._labelled(text, source)

    def _labelled(self, text: LabelledText, source: str) -> Iterator[Recorded]:
        first, *_ = as_requests([registry.find(text.kind).request.model_validate(dict(text.request))])
        prompt, budget = self._prompt(first), first.sampling.max_tokens
        prose = tuple(self._encoded("\n\n".join(_prose(text.artifact))))
        if prose:
            yield Recorded(text.kind, source, prompt, prose, len(prose), None)
        if first.schema is not None and (tokens := self._constrained(first.schema, text.artifact, budget)):
            yield Recorded(text.kind, source, prompt, tokens, budget, first.schema)

    def _prompt(self, request: GenerationRequest) -> tuple[int, ...]:
        [prompt] = self._encoder.encode([self._encoder.write(request)])
        if isinstance(prompt, Exception):
            raise prompt
        return prompt

    def _encoded(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _constrained(self, schema: str, artifact: object, budget: int) -> tuple[int, ...]:
        """The tokens of an artifact as they are drawn and forced under its schema; none if that has no such text."""
        for colon in (":", ": "):
            left = json.dumps(artifact, ensure_ascii=False, separators=(",", colon)).encode()
            tokens, planned, grammar = list[int](), list[int](), self._grammars.compile(schema)
            assert isinstance(grammar, JsonGrammar)
            grammar.limit(budget)
            while left and not grammar.finished:
                if drawn := [*grammar.forced()]:
                    planned = []
                else:
                    planned = planned or self._encoded(left.decode())
                    drawn = [planned.pop(0)]
                data = b"".join(grammar.tokens.table[token] for token in drawn)
                if not left.startswith(data) or grammar.allows(drawn) < len(drawn):
                    break
                for token in drawn:
                    grammar.advance(token)
                left, tokens = left[len(data) :], [*tokens, *drawn]
            if not left:
                return tuple(tokens)
        return ()

    def close(self) -> None:
        self._core.stop()
        self._core.join()


def jobs(kind: str, cases: int) -> list[Request[Any]]:
    """Jobs over the sources of the bundled cases; of hooks, a second one over each."""
    request = registry.find(kind).request
    made = [request.model_validate(dict(case.request)) for case in bundled(kind)[:cases]]
    if kind == "hook":
        made = [each for job in made for each in (job, job.model_copy(update={"channel": _OTHER}))]
    return made


def _prose(value: object) -> Iterator[str]:
    """The longer texts of an artifact."""
    if isinstance(value, str):
        if len(value) >= _MIN_PROSE:
            yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            if name != _COPIED:
                yield from _prose(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _prose(each)


class Recordings:
    """A folder of recorded outputs, with the tokenizer of their tokens. `end` ends a text."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self.end: int = self._tokenizer.eos_token_id
        self.vocab_size = len(self._tokenizer)

    def grammars(self, vocab_size: int) -> GrammarCompiler:
        return GrammarCompiler(core_tokenizer(self._tokenizer), vocab_size, [self.end])

    def of(self, name: str) -> list[Recorded]:
        """The outputs of one writer, those of the same source side by side."""
        records = [
            Recorded(**(each | {"prompt": tuple(each["prompt"]), "tokens": tuple(each["tokens"])}))
            for each in map(json.loads, (self._folder / f"{name}.jsonl").read_text().splitlines())
        ]
        return sorted(records, key=lambda each: each.source)


def save(folder: Path, name: str, recorded: Iterable[Recorded]) -> None:
    """Write a line of JSON for each."""
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(asdict(each)) + "\n" for each in recorded))
