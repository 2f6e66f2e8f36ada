"""What grammars cost the host: the kinds' schemas over a real vocabulary, a step's worth of rows at a time.

Texts are random allowed tokens, as with random weights: the hardest case, since they are of every script. A drain is
repeated: the first one builds the lexers' states, the second finds them.

    python -m benchmarks.masks --tokenizer FOLDER_OR_FILE [--rows 700] [--threads 1 8 16]
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from llguidance import LLExecutor
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from benchmarks.command_line import CommandLine, positive
from benchmarks.results import table
from thothy_ai.engine.execution.mask_table import MaskTable
from thothy_ai.engine.grammar import batch as grammar_batch
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.grammar.lexers import THREADS
from thothy_ai.engine.grammar.memory import MaskMemory, RowMasks
from thothy_ai.engine.weights.model_text import core_tokenizer
from thothy_ai.jobs import Context, JobKind
from thothy_ai.jobs.kinds import hook, report_section, translation, trend_summary

KINDS: tuple[tuple[JobKind, float], ...] = (  # and their share of a mixed workload
    (trend_summary.KIND, 0.3),
    (hook.KIND, 0.35),
    (translation.KIND, 0.25),
    (report_section.KIND, 0.1),
)
SENTENCE = "The town has had six new buses since May. "
MAX_TOKENS = 150
PHASES = ("compile", "advance", "forced", "masks")


def jobs(kinds: Sequence[tuple[JobKind, float]], count: int, rng: random.Random) -> list[str]:
    """Schemas of requests over sources of different lengths."""
    chosen = rng.choices([kind for kind, _ in kinds], [share for _, share in kinds], k=count)
    requests = [(kind, kind.request(source=SENTENCE * rng.randint(2, 85))) for kind in chosen]
    return [json.dumps(call.schema) for kind, request in requests for call in next(kind.plan(request, Context()))]


@dataclass
class Drain:
    """Keeps `rows` grammars running until the schemas are used up, with random tokens in place of a model's."""

    compiler: GrammarCompiler
    rows: int
    table: MaskTable
    memory: MaskMemory
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    seconds: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    tokens: int = 0
    worst: float = 0.0  # masks of one step

    def run(self, schemas: Sequence[str]) -> Drain:
        waiting = list(schemas)
        running: dict[JsonGrammar, int] = {}
        while waiting or running:
            while waiting and len(running) < self.rows:
                with self._timed("compile"):
                    running[self._started(waiting.pop())] = 0
            self._step(running)
        return self

    def _started(self, schema: str) -> JsonGrammar:
        grammar = self.compiler.compile(schema)
        assert isinstance(grammar, JsonGrammar)
        for token in grammar.forced():
            grammar.advance(token)
        return grammar

    def _step(self, running: dict[JsonGrammar, int]) -> None:
        grammars = list(running)
        before = self.seconds["masks"]
        with self._timed("masks"):
            masks = RowMasks(len(grammars), self.memory)
            filling = grammar_batch.start_filling(masks, [(grammar, row) for row, grammar in enumerate(grammars)])
            rows, step = filling.wait(), masks.of_step()
        self.worst = max(self.worst, self.seconds["masks"] - before)
        mask = self.table.rows(step)
        with self._timed("forced"):
            forced = {row: tokens[0] for row in rows if (tokens := grammars[row].forced())}
        chosen = [(grammar, forced.get(row) or self._allowed(mask[row])) for row, grammar in enumerate(grammars)]
        with self._timed("advance"):
            errors = grammar_batch.advance_all(chosen)
        assert not any(errors), errors
        for grammar in grammars:
            running[grammar] += 1
            if grammar.finished or running[grammar] >= MAX_TOKENS:
                del running[grammar]
        self.steps += 1
        self.tokens += len(grammars)

    def _allowed(self, row: Tensor) -> int:
        """Any allowed token; not all are equally likely, which would take longer than the mask."""
        words = row.numpy().view(np.uint32)
        word = int(self.rng.choice(words.nonzero()[0]))
        bits = [bit for bit in range(32) if int(words[word]) >> bit & 1]
        return 32 * word + bits[int(self.rng.integers(len(bits)))]

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - began

    def cells(self) -> tuple[str, ...]:
        per_step = (f"{self.seconds[phase] / self.steps * 1e3:.2f}" for phase in PHASES)
        mean = (f"{self.tokens}", f"{self.tokens / self.steps:.0f}")
        each = self.seconds.total() / self.tokens * 1e6
        return (*mean, *per_step, f"{self.worst * 1e3:.1f}", f"{each:.1f}")


def main() -> None:
    """Print a table: milliseconds per step by phase, and microseconds per token over all."""
    parser = CommandLine("masks", __doc__)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json, or a folder with one")
    parser.add_argument("--rows", type=positive(int), default=700)
    parser.add_argument("--threads", type=positive(int), nargs="+", default=[THREADS])
    parser.add_argument("--kinds", nargs="*", help="only these workloads: mixed, or a kind's name")
    options = parser.parse_args()
    file = options.tokenizer / "tokenizer.json" if options.tokenizer.is_dir() else options.tokenizer
    if not file.is_file():
        parser.error(f"{file}: no such file")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file))
    size = len(tokenizer)
    for threads in options.threads:
        rows = []
        executor = LLExecutor(threads)
        grammar_batch._executor = lambda executor=executor: executor  # type: ignore[assignment,misc]
        began = time.perf_counter()
        compiler = GrammarCompiler(core_tokenizer(tokenizer), size, [2], lexers=threads)
        compiler.compile("{}")
        built = time.perf_counter() - began
        print(f"{size:,} tokens, {threads} threads: vocabulary built in {built:.1f} s", flush=True)
        for name, kinds in (("mixed", KINDS), *((kind.name, ((kind, 1.0),)) for kind, _ in KINDS)):
            if options.kinds and name not in options.kinds:
                continue
            memory, device = MaskMemory(size), MaskTable(options.rows, size, torch.device("cpu"))
            schemas = jobs(kinds, 2 * options.rows, random.Random(name))
            for when in ("first", "warm"):
                drain = Drain(compiler, options.rows, device, memory).run(schemas)
                rows.append((f"{threads}", name, when, *drain.cells()))
        phases = (f"{phase} ms" for phase in PHASES)
        header = ("threads", "kinds", "time", "tokens", "rows", *phases, "worst masks ms", "us per token")
        print(table(header, rows), flush=True)


if __name__ == "__main__":
    main()
