"""What KV budgets lose: how well a model knows what a source says when it is asked afterwards, with and without them.

    python -m benchmarks.kv_budget_losses                                                       on a GPU
    python -m benchmarks.kv_budget_losses --device cpu --lengths 1000 --budgets 512 256 --cases 2

A source is a collection of the bundled texts. In it stand, in each case at another depth, a sentence with a code of
five digits, and a paragraph that occurs nowhere else. After it comes the beginning of the sentence (fact), of the
paragraph (quotation), or of a text that is not in the source (continuation), and each of the next tokens is predicted
from the right ones before it.

The same is asked of a source in which the two do not stand. If the model does hardly better with all KV than without
them, it is too weak at that length, and budgets show nothing. The continuation needs what is near it only: it shows
whether the model works at that length at all.

A model whose context is too short is extended by YaRN (`benchmarks.extended`). What that costs is shown by the model as
it is, for the sources that fit its context.
"""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import torch

from benchmarks.command_line import CommandLine, positive
from benchmarks.extended import write_extended
from benchmarks.phases import BenchmarkError
from benchmarks.results import Table, record, table
from thothy_ai.demo.sources import load_sources
from thothy_ai.engine.api import SamplingParams, TokenLogprob
from thothy_ai.engine.api.core import CoreRequest, Event, TokenEvent
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.api.sampling import LogitBias
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.execution.device import resolve_device, resolve_dtype, use_device
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.weights.loader import load_model
from thothy_ai.jobs.evaluation.cases import bundled

ANSWER = 12  # tokens to predict, at most
QUOTED = 16  # tokens of the paragraph that come before
BEFORE = 200  # tokens of the next text that come before
ROOM = 300  # tokens of the context beside the source
MIN_LENGTH = 500
ROWS = 16
FORCED = 100.0  # the bias with which a token is drawn whatever the model says
TASKS = ("fact", "quotation", "continuation")
PLACES = ("Bergen", "Lisbon", "Turku", "Ghent", "Basel", "Cork", "Leeds", "Nantes", "Padua", "Porto")
HEADER = ("tokens", "KV", *(f"{task}: {figure}" for task in TASKS for figure in ("log-probability", "first choice")))

Tokens = tuple[int, ...]
Encode = Callable[[str], Sequence[int]]
Row = tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """What follows a source, and the tokens that should come next."""

    task: str
    lead: Tokens
    answer: Tokens


@dataclass(frozen=True)
class Case:
    """A source, the same collection without what is asked for, and the questions."""

    source: Tokens
    without: Tokens
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Score:
    """The log-probability of the right token, and whether it is the likeliest."""

    task: str
    logprob: float
    first: bool


def cases(encode: Encode, length: int, count: int) -> Iterator[Case]:
    """Cases whose sources have exactly `length` tokens; the number of a case decides about all but the length."""
    known = load_sources()
    others = [*dict.fromkeys(str(case.request["source"]).strip() for case in bundled("report_section"))]
    for number in range(count):
        drawn = random.Random(number)
        quoted, following = drawn.sample(known, 2)
        begin, code = (
            f"The access code of the {PLACES[number % len(PLACES)]} archive is",
            f" {drawn.randrange(10**5):05}",
        )
        paragraph = quoted.paragraphs[0]
        asked = encode(f"{begin}{code}.\n\n{paragraph}\n\n")
        texts = [*others, *(each.text for each in known if each not in (quoted, following))]
        drawn.shuffle(texts)
        without = _collected([encode(f"{text}\n\n") for text in texts], length)
        place = int((number + 0.5) / count * (length - len(asked)))
        source = (*without[:place], *asked, *without[place : length - len(asked)])
        begins, next_text = encode(f"\n\n{begin}"), encode(following.text)
        whole = encode(f"\n\n{paragraph}")
        questions = (
            Question("fact", tuple(begins), tuple(encode(code))),
            Question("quotation", tuple(whole[:QUOTED]), tuple(whole[QUOTED : QUOTED + ANSWER])),
            Question("continuation", tuple(next_text[:BEFORE]), tuple(next_text[BEFORE : BEFORE + ANSWER])),
        )
        yield Case(source, without, questions)


def _collected(texts: Sequence[Sequence[int]], length: int) -> Tokens:
    tokens: list[int] = []
    for text in cycle(texts):
        tokens += text
        if len(tokens) >= length:
            return tuple(tokens[:length])
    raise AssertionError


class Predictor:
    """A model in a core of its own, which runs until `close`."""

    def __init__(self, path: Path, device: torch.device, context: int, kv_tokens: int, cache_dir: Path) -> None:
        text, dtype = LocalText(), resolve_dtype("auto", device)
        loaded = load_model(path, text=text, device=device, dtype=dtype, cache_dir=cache_dir, max_context=context)
        if text.loaded is None:
            raise ModelLoadError(f"{path} has no tokenizer")
        self.encode: Encode = text.loaded.encode
        self.context = loaded.config.max_context
        options = EngineOptions(
            url="", device=str(device), max_context=self.context, kv_tokens=kv_tokens, max_rows=ROWS, graphs=False
        )
        self._events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        self._core = build_core(loaded, options, self._events.put)
        self._core.start()

    def scores(self, source: Tokens, questions: Sequence[Question], budget: int | None) -> list[Score]:
        """Predict each answer's tokens after the source and the question, from a request for each token."""
        asked = [(each, place) for each in questions for place in range(len(each.answer))]
        drawn: list[TokenLogprob] = []
        for part in (asked[:1], asked[1:]):  # the others find the first one's blocks, unless they have a budget
            requests = {}
            for question, place in part:
                bias = LogitBias(question.answer[place], FORCED)
                sampling = SamplingParams(max_tokens=1, ignore_eos=True, logit_bias=(bias,), logprobs=1)
                prompt = (*source, *question.lead, *question.answer[:place])
                name = f"{time.monotonic_ns()}-{len(requests)}"
                requests[name] = CoreRequest(name, prompt, sampling, kv_budget=budget)
            drawn += self._run(requests)
        right = [question.answer[place] for question, place in asked]
        return [
            Score(question.task, each.logprob, each.top_tokens[0] == token)
            for (question, _), token, each in zip(asked, right, drawn, strict=True)
        ]

    def _run(self, requests: Mapping[str, CoreRequest]) -> list[TokenLogprob]:
        """The log-probabilities of the requests' tokens, in order."""
        for request in requests.values():
            self._core.submit(request)
        drawn, ended = dict[str, TokenLogprob](), set[str]()
        while len(ended) < len(requests):
            for event in self._events.get():
                if isinstance(event, TokenEvent) and event.logprobs and event.logprobs[0] is not None:
                    drawn[event.id] = event.logprobs[0]
                elif not isinstance(event, TokenEvent):
                    ended.add(event.id)
                    if event.error is not None:
                        raise BenchmarkError(str(event.error))
        return [drawn[name] for name in requests]

    def close(self) -> None:
        """End the core; its memory is freed with this object."""
        self._core.stop()
        self._core.join()


def row(length: int, kept: str, scores: Sequence[Score]) -> Row:
    """A row of the table: means over all cases."""
    figures = []
    for task in TASKS:
        own = [score for score in scores if score.task == task]
        figures += [f"{mean(score.logprob for score in own):.2f}", f"{mean(score.first for score in own):.0%}"]
    return (f"{length:,}", kept, *figures)


def measured(model: Predictor, lengths: Sequence[int], budgets: Sequence[int], count: int, name: str) -> list[Row]:
    """The rows of all lengths that fit the model's context, printed as they are made."""
    rows = []
    for length in lengths:
        if length + ROOM > model.context:
            continue
        chosen = [*cases(model.encode, length, count)]
        kinds: dict[str, tuple[bool, int | None]] = {"not in the source": (False, None), "all": (True, None)}
        kinds |= {f"{budget:,}": (True, budget) for budget in budgets if budget < length}
        for kept, (said, budget) in kinds.items():
            scores = [
                score
                for case in chosen
                for score in model.scores(case.source if said else case.without, case.questions, budget)
            ]
            rows.append(row(length, f"{kept}{name}", scores))
            print(*rows[-1], sep=" | ", flush=True)
    return rows


def main() -> None:
    """Print the table, and record it if it was measured on a GPU."""
    line = CommandLine("kv_budget_losses", __doc__)
    line.add_argument("--device", default="auto")
    line.add_argument("--model", type=Path, help="GGUF file or Hugging Face folder. Default: the bundled model.")
    line.add_argument("--lengths", type=positive(int), nargs="+", default=[4_000, 8_000, 16_000], help="of the sources")
    line.add_argument("--budgets", type=positive(int), nargs="*", default=[4096, 2048])
    line.add_argument("--cases", type=positive(int), default=6)
    line.add_argument("--factor", type=positive(float), default=2.5, help="by which a context that is too short grows")
    given = line.parse_args()
    if min(given.lengths) < MIN_LENGTH:
        line.error(f"argument --lengths: {min(given.lengths)} is less than {MIN_LENGTH}")
    path = given.model or bundled_model_path()
    context = max(given.lengths) + ROOM
    kv_tokens = 2 * context + ROWS * (5 * max(given.budgets, default=0) // 4 + ROOM)
    with line.checked(), TemporaryDirectory() as folder:
        device = resolve_device(given.device)
        use_device(device)
        model = Predictor(path, device, context, kv_tokens, Path(folder))
        fits, rows = model.context >= context, list[Row]()
        if not fits:
            rows = measured(model, given.lengths, (), given.cases, ", not extended")
            model.close()
            extended = Path(folder) / path.name
            write_extended(path, extended, given.factor)
            model = Predictor(extended, device, context, kv_tokens, Path(folder))
            if model.context < context:
                raise ModelLoadError(
                    f"{path}: extended by {given.factor:g}, it has {model.context:,} of {context:,} tokens"
                )
        rows += measured(model, given.lengths, given.budgets, given.cases, "")
        model.close()
    print(table(HEADER, rows))
    if device.type == "cuda":
        lengths, budgets = (" ".join(map(str, each)) for each in (given.lengths, given.budgets))
        command = f"python -m benchmarks.kv_budget_losses --device {given.device} --cases {given.cases}"
        command += f" --lengths {lengths} --budgets {budgets}" + ("" if fits else f" --factor {given.factor:g}")
        record(
            f"What KV budgets lose, {path.stem}",
            "Accuracy",
            command,
            list(figures(rows)),
            tables=[Table(f"{given.cases} cases; means over tokens", HEADER, rows)],
            device=torch.cuda.get_device_name(device),
        )


def figures(rows: Sequence[Row]) -> Iterator[Row]:
    """Of each length, the longest first, and each task: the log-probabilities, and the shares of first choices."""
    for length in reversed([*dict.fromkeys(each[0] for each in rows)]):
        own = [each for each in rows if each[0] == length]
        for place, task in enumerate(TASKS):
            values = (f"{each[2 + 2 * place]} ({each[3 + 2 * place]})" for each in own)
            yield f"{task}, {length} tokens: {'; '.join(each[1] for each in own)}", "; ".join(values)


if __name__ == "__main__":
    main()
