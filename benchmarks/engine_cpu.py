"""The engine against `transformers.generate` with static batches: the same model in fp32, the same threads, one run.

Rounds alternate between the two, and the reported ratio is the median of the rounds' ratios, so that other load on the
machine affects both.
"""

from __future__ import annotations

import queue
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerBase

from thothy_ai.demo.sources import load_sources
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.weights.loader import LoadedModel, load_model

STATIC_BATCH = 16


@dataclass(frozen=True)
class Work:
    """One job of a benchmark: a prompt, and the number of output tokens."""

    prompt: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class Comparison:
    """Median seconds of both sides, and the median of the rounds' ratios."""

    name: str
    rounds: int
    output_tokens: int
    engine_seconds: float
    peer_seconds: float
    ratio: float

    def row(self) -> tuple[str, ...]:
        """Cells of the results table."""
        rates = (self.output_tokens / self.engine_seconds, self.output_tokens / self.peer_seconds)
        return (self.name, str(self.rounds), *(f"{rate:.0f}" for rate in rates), f"{self.ratio:.2f} x")


class EngineSide:
    """Our engine, resident; prompts of different rounds share nothing in its prefix cache."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        self._core: EngineCore = build_core(
            loaded, EngineOptions(url="", dtype="float32", device="cpu"), self._events.put
        )
        self._core.start()
        self._round = 0

    def __call__(self, work: Sequence[Work]) -> None:
        """Run all jobs, submitted at once."""
        self._round += 1
        for index, job in enumerate(work):
            sampling = SamplingParams(max_tokens=job.output, ignore_eos=True)
            self._core.submit(CoreRequest(f"{self._round}-{index}", job.prompt, sampling, salt=str(self._round)))
        left = len(work)
        while left:
            finished = [event for event in self._events.get() if isinstance(event, FinishedEvent)]
            left -= len(finished)

    def close(self) -> None:
        """Stop the core."""
        self._core.stop()
        self._core.join()


class StaticBatches:
    """transformers: batches in arrival order, padded on the left, each run until its longest output is done."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def __call__(self, work: Sequence[Work]) -> None:
        for start in range(0, len(work), STATIC_BATCH):
            self._batch(work[start : start + STATIC_BATCH])

    @torch.inference_mode()
    def _batch(self, batch: Sequence[Work]) -> None:
        longest = max(len(job.prompt) for job in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, job in enumerate(batch):
            ids[row, longest - len(job.prompt) :] = torch.tensor(job.prompt)
            mask[row, longest - len(job.prompt) :] = 1
        count = max(job.output for job in batch)
        settings = GenerationConfig(max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0)
        output = self._model.generate(ids, attention_mask=mask, generation_config=settings)
        if output.shape[1] != longest + count:
            raise RuntimeError("the peer stopped early")


def equal_prompts(tokenizer: PreTrainedTokenizerBase) -> list[Work]:
    """16 equal prompts, 64 tokens each."""
    tokens = tokenizer.encode(load_sources()[0].text)[:128]
    return [Work(tuple(tokens), 64)] * 16


def different_prompts(tokenizer: PreTrainedTokenizerBase) -> list[Work]:
    """16 prompts of the same length with nothing in common, 64 tokens each."""
    text = tokenizer.encode(" ".join(source.text for source in load_sources()))
    return [Work(tuple(text[start : start + 128]), 64) for start in range(0, 16 * 128, 128)]


def mixed_lengths(tokenizer: PreTrainedTokenizerBase) -> list[Work]:
    """64 jobs: prompts of 40 to 300 tokens from the bundled texts, outputs of 16 to 200."""
    draw = random.Random(20)
    texts = [tokenizer.encode(source.text) for source in load_sources()]
    work = []
    for index in range(64):
        tokens = texts[index % len(texts)]
        length = draw.randint(40, min(300, len(tokens)))
        start = draw.randint(0, len(tokens) - length)
        work.append(Work(tuple(tokens[start : start + length]), draw.randint(16, 200)))
    return work


def compare(name: str, work: list[Work], rounds: int, engine: EngineSide, peer: StaticBatches) -> Comparison:
    """Alternate between the two for some rounds."""
    times = [_round(name, work, engine, peer) for _ in range(rounds)]
    return Comparison(
        name,
        rounds,
        sum(job.output for job in work),
        statistics.median(ours for ours, _ in times),
        statistics.median(theirs for _, theirs in times),
        statistics.median(theirs / ours for ours, theirs in times),
    )


def _round(name: str, work: list[Work], engine: EngineSide, peer: StaticBatches) -> tuple[float, float]:
    ours, theirs = _timed(engine, work), _timed(peer, work)
    print(f"{name}: engine {ours:.1f} s, transformers {theirs:.1f} s", flush=True)
    return ours, theirs


def _timed(side: Callable[[Sequence[Work]], None], work: list[Work]) -> float:
    begin = time.perf_counter()
    side(work)
    return time.perf_counter() - begin


def run(folder: Path) -> list[Comparison]:
    """Both comparisons of the static-batching peer on the Hugging Face folder's model."""
    torch.set_num_threads(2)
    text = LocalText()
    loaded = load_model(folder, device=torch.device("cpu"), dtype=torch.float32, cache_dir=None, text=text)
    if (tokenizer := text.loaded) is None:
        raise ModelLoadError(f"{folder} has no tokenizer")
    engine, peer = EngineSide(loaded), StaticBatches(folder)
    warm = [Work((1, 2, 3), 4)] * 2
    engine(warm)
    peer(warm)
    try:
        return [
            compare("16 equal prompts x 64 tokens", equal_prompts(tokenizer), 3, engine, peer),
            compare("16 different prompts x 64 tokens", different_prompts(tokenizer), 3, engine, peer),
            compare("64 jobs, outputs 16 to 200", mixed_lengths(tokenizer), 1, engine, peer),
        ]
    finally:
        engine.close()
