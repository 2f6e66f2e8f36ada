"""Start-up of an engine's process: seconds until it is ready and until its first job under a schema is done.

    python -m benchmarks.startup --shape llama-8b
    python -m benchmarks.startup --shape tiny --tokenizer FOLDER

Random weights of the shape and a byte-level tokenizer of its size are written to a folder first; with a tokenizer's
folder, its vocabulary is taken, and the weights are drawn as the engine starts. The engine starts twice: the second
time with the page cache and the caches of compiled kernels warm. CPU seconds are those of its two processes until they
have ended. Its log tells the phases.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from benchmarks.command_line import CommandLine
from thothy_ai.bench.models import random_folder
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.engine.api import GenerationRequest, SamplingParams
from thothy_ai.engine.serving.client import connect
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.inventory import expected_tensors

START = (
    "import sys; from pathlib import Path; from thothy_ai.engine.process.main import run_engine; "
    "from thothy_ai.engine.api.options import EngineOptions; "
    "run_engine(EngineOptions(url=sys.argv[1], model=Path(sys.argv[2])))"
)
SCHEMA = '{"type": "object", "properties": {"title": {"type": "string", "maxLength": 40}}, "required": ["title"]}'


def write_folder(shape: dict[str, Any], folder: Path) -> None:
    """A model of this configuration, each layer in a shard of its own."""
    config = shape | {"eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(int(config["vocab_size"]), folder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shards: dict[str, dict[str, torch.Tensor]] = {}
    where: dict[str, str] = {}
    for name, sizes in expected_tensors(folder, model_config(folder)).items():
        layer = name.split(".")[2] if name.startswith("model.layers.") else "rest"
        where[name] = f"model-{layer}.safetensors"
        fresh = torch.empty(sizes, dtype=torch.bfloat16, device=device)
        filled = fresh.fill_(1.0) if "norm" in name else fresh.normal_(0.0, 0.02)
        shards.setdefault(where[name], {})[name] = filled.cpu()
    for file, tensors in shards.items():
        save_file(tensors, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def write_tokenizer(size: int, folder: Path) -> None:
    """Byte-level BPE with random merges."""
    draw, tokens = random.Random(0), ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    known, merges = set(tokens), []
    while len(tokens) < size:
        left, right = draw.choice(tokens[1:2000]), draw.choice(tokens[1:20_000])
        if len(left + right) < 20 and left + right not in known:
            known.add(left + right)
            tokens.append(left + right)
            merges.append((left, right))
    backend = Tokenizer(models.BPE({token: id_ for id_, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>").save_pretrained(folder)


def start(folder: Path, label: str) -> None:
    """Start an engine, run one job under a schema, and print when what was done."""
    url, began = f"unix://{folder}/engine.sock", time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", START, url, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        line = engine.stdout.readline()
        ready = time.monotonic() - began
        if line:
            asyncio.run(first_job(url))
        done = time.monotonic() - began
        engine.send_signal(signal.SIGTERM)
        _, log = engine.communicate()
    phases = [each for each in log.splitlines() if "configuration" in each] or log.splitlines()[-3:]
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
    told = f"ready after {ready:.1f} s, first job under a schema after {done:.1f} s, {seconds:.1f} s of CPU time"
    print(f"{label}: {told}", *phases, sep="\n    ")


async def first_job(url: str) -> None:
    """One request under a schema."""
    client = connect(url)
    await client.start()
    asked = await client.submit(
        GenerationRequest("first", text="A title:", schema=SCHEMA, sampling=SamplingParams(max_tokens=32))
    )
    await asked.result()
    await client.close()


def main() -> None:
    """Write the folder, and start twice."""
    parser = CommandLine("startup", __doc__)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--tokenizer", type=Path)
    chosen = parser.parse_args()
    with parser.checked(), tempfile.TemporaryDirectory() as made:
        if chosen.tokenizer is None:
            write_folder(SHAPES[chosen.shape], Path(made))
        else:
            random_folder(chosen.shape, chosen.tokenizer, Path(made))
        for label in ("first", "again"):
            start(Path(made), f"{chosen.shape}, {label}")


if __name__ == "__main__":
    main()
