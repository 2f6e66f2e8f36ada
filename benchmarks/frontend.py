"""What the frontend costs the core: jobs over the engine's socket, with both in one process and in a process each.

    python -m benchmarks.frontend [--shape tiny|qwen3-0.6b] [--model PATH] [--jobs 1000] [--rounds 3] [--device auto]

Everything is handed over at once, so that the frontend tokenizes prompts and makes texts while the core decodes. Rounds
alternate between the two arrangements. `busy` is the share of the wall time in which the device computed; `ms per step`
is wall time. Without --model, the weights are random, and the tokenizer is trained on the bundled texts.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.command_line import CommandLine, positive
from thothy_ai.demo.sources import load_sources
from thothy_ai.engine.api import EngineStats, GenerationRequest, Message, SamplingParams
from thothy_ai.engine.execution.device import resolve_device
from thothy_ai.engine.serving.client import SocketEngineClient, connect

ARRANGEMENTS = {
    "one process": "from benchmarks.one_process import load_engine as make_engine",
    "a process each": "from thothy_ai.engine.process.factory import make_engine",
}
SERVE = """
from pathlib import Path, PosixPath
{}
from thothy_ai.engine.process import main
from thothy_ai.engine.api.options import EngineOptions
main.make_engine = make_engine
main.run_engine(EngineOptions(**{!r}))
"""
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    "qwen3-0.6b": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
}
VOCABULARY = 8192
CHAT_TEMPLATE = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}<|start|>assistant\n"


@dataclass(frozen=True)
class Round:
    """One drain."""

    seconds: float
    steps: int
    busy: float
    output_tokens: int


def save_model(folder: Path, shape: str) -> None:
    """A Qwen3 model with random weights in bf16, and a tokenizer of the bundled texts."""
    import torch  # noqa: PLC0415  slow to import
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast  # noqa: PLC0415  as above

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=_trained(), eos_token="<|end|>")
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    size = SHAPES[shape]
    config = AutoConfig.for_model(
        "qwen3",
        **size,
        num_key_value_heads=size["num_attention_heads"] // 2,
        head_dim=size["hidden_size"] // size["num_attention_heads"] * (2 if shape != "tiny" else 1),
        vocab_size=VOCABULARY,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
    )
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


def _trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|start|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([source.text for source in load_sources()], trainer)
    return tokenizer


def requests(count: int, words: int, outputs: tuple[int, int]) -> list[GenerationRequest]:
    """Chats about the bundled texts, with about so many words and between so many tokens of output."""
    draw = random.Random(7)
    text = " ".join(source.text for source in load_sources()).split()
    made = []
    for number in range(count):
        start = draw.randrange(max(1, len(text) - words))
        content = " ".join(draw.sample(text[start : start + words], min(words, len(text) - start)))
        sampling = SamplingParams(max_tokens=draw.randint(*outputs), ignore_eos=True)
        made.append(GenerationRequest(f"j{number}", (Message("user", content),), sampling=sampling, profile="bench"))
    return made


@contextmanager
def engine(arrangement: str, url: str, options: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """An engine that listens at `url`."""
    code = SERVE.format(ARRANGEMENTS[arrangement], options | {"url": url})
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None or "ready" not in process.stdout.readline():
            raise SystemExit(f"{arrangement}: the engine did not start")
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


async def drain(client: SocketEngineClient, work: list[GenerationRequest]) -> Round:
    """Submit everything, wait for everything."""
    before, began = await client.stats(), time.perf_counter()
    generations = [await client.submit(request) for request in work]
    results = [await generation.result() for generation in generations]
    seconds = time.perf_counter() - began
    after: EngineStats = await client.stats()
    return Round(
        seconds,
        after.core.steps - before.core.steps,
        (after.core.busy_seconds - before.core.busy_seconds) / seconds,
        sum(result.usage.output_tokens for result in results),
    )


async def _measured(url: str, work: list[GenerationRequest]) -> Round:
    client = connect(url)
    await client.start()
    await drain(client, [GenerationRequest("warm", text="warm", sampling=SamplingParams(max_tokens=8))])
    try:
        return await drain(client, work)
    finally:
        await client.close()


def compare(folder: Path, work: list[GenerationRequest], rounds: int, options: dict[str, Any]) -> None:
    """Alternate between the arrangements, each time with a new engine, and print each round and the medians."""
    found: dict[str, list[Round]] = {arrangement: [] for arrangement in ARRANGEMENTS}
    print("| arrangement | s | jobs/s | output tok/s | steps | ms per step | busy |")
    print("|---|---|---|---|---|---|---|")
    for _ in range(rounds):
        for arrangement, taken in found.items():
            url = f"unix://{folder}/e.sock"
            with engine(arrangement, url, options):
                taken.append(asyncio.run(_measured(url, work)))
            print(_row(arrangement, taken[-1], len(work)), flush=True)
    medians = [statistics.median(one.seconds for one in taken) for taken in found.values()]
    print(f"medians: {medians[0]:.2f} s in one process, {medians[1]:.2f} s with a process each: ", end="")
    print(f"{medians[0] / medians[1]:.2f} x")


def _row(arrangement: str, one: Round, jobs: int) -> str:
    cells = (
        arrangement,
        f"{one.seconds:.2f}",
        f"{jobs / one.seconds:.1f}",
        f"{one.output_tokens / one.seconds:,.0f}",
        f"{one.steps}",
        f"{1000 * one.seconds / one.steps:.2f}",
        f"{one.busy:.1%}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Parse the arguments and compare."""
    parser = CommandLine("frontend", __doc__)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--jobs", type=positive(int), default=1000)
    parser.add_argument("--words", type=positive(int), default=400, help="of each prompt")
    parser.add_argument(
        "--outputs", type=positive(int), nargs=2, default=(50, 250), help="fewest and most output tokens"
    )
    parser.add_argument("--rounds", type=positive(int), default=3)
    parser.add_argument("--rows", type=positive(int), default=None)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    if given.model is not None and not given.model.exists():
        parser.error(f"{given.model}: no such file or folder")
    if given.outputs[0] > given.outputs[1]:
        parser.error("argument --outputs: {} is more than {}".format(*given.outputs))
    with parser.checked():
        resolve_device(given.device)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if given.model is None:
            save_model(folder / "model", given.shape)
        options: dict[str, Any] = {
            "model": given.model or folder / "model",
            "device": given.device,
            "max_rows": given.rows,
        }
        if given.device == "cpu":
            options |= {"kv_tokens": 400_000, "token_budget": 2048}
        compare(folder, requests(given.jobs, given.words, tuple(given.outputs)), given.rounds, options)


if __name__ == "__main__":
    main()
