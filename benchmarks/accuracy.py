"""`python -m benchmarks.accuracy`: the accuracy cost of fp8 weights and an fp8 KV cache, on the demo's source texts.

    python -m benchmarks.accuracy --checkpoints

quantizes the model's weights in each of the formats that checkpoints are published in, to nearest and without
calibration, and says what that costs.

Each text is processed in one forward pass with teacher forcing, using the reference operations on a CPU and the Triton
kernels on a GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from benchmarks.checkpoints import SCHEMES, bits_of_a_weight, write_quantized
from benchmarks.command_line import CommandLine
from benchmarks.results import Table, record, table
from thothy_ai.demo.sources import load_sources
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.execution.device import resolve_device
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.weights.gguf.convert import converted_folder
from thothy_ai.engine.weights.loader import default_cache_dir, load_model
from thothy_ai.kernels.fp8 import FP8
from thothy_ai.kernels.paged import AttentionBatch, AttentionShape
from thothy_ai.kernels.step import StepColumns

BLOCK = 16
FIGURES = ("perplexity", "mean difference", "99th percentile", "maximum", "same top token")
HEADER = ("weights", "KV cache", *FIGURES)
CHECKPOINT_HEADER = ("format", "bits per weight", *FIGURES)


@dataclass(frozen=True)
class Variant:
    """One configuration: the model's dtype, the format of its weights, and whether the KV cache is fp8."""

    dtype: torch.dtype
    weights: str = "auto"
    fp8_cache: bool = False

    @property
    def label(self) -> tuple[str, str]:
        plain = str(self.dtype).removeprefix("torch.")
        return plain if self.weights == "auto" else self.weights, "fp8" if self.fp8_cache else plain


@dataclass(frozen=True)
class Reading:
    """Per token, except each text's first: its log-probability, and the most likely token. Both [tokens]."""

    log_probabilities: Tensor
    top_tokens: Tensor

    @property
    def perplexity(self) -> float:
        return math.exp(-float(self.log_probabilities.mean()))


def variants(device: torch.device) -> list[Variant]:
    """All configurations, the baseline first: the engine's default on this device."""
    base, *others = (torch.bfloat16,) if device.type == "cuda" else (torch.float32, torch.bfloat16)
    fp8 = [Variant(base, fp8_cache=True), Variant(base, "fp8"), Variant(base, "fp8", fp8_cache=True)]
    return [Variant(base), Variant(base, "stored"), *(Variant(other) for other in others), *fp8]


def read(path: Path, variant: Variant, device: torch.device) -> Reading:
    """Predict all texts under one variant."""
    read_here = LocalText()
    loaded = load_model(path, device=device, dtype=variant.dtype, weights=variant.weights, text=read_here)
    if read_here.loaded is None:
        raise ModelLoadError(f"{path} has no tokenizer")
    texts = [read_here.loaded.encode(source.text) for source in load_sources()]
    readings = [_read_text(loaded.model, FP8 if variant.fp8_cache else variant.dtype, text) for text in texts]
    return Reading(*(torch.cat(parts) for parts in zip(*readings, strict=True)))


def _read_text(model: Model, kv_dtype: torch.dtype, text: list[int]) -> tuple[Tensor, Tensor]:
    """Log-probabilities and most likely tokens for all of the text's T tokens except the first, [T - 1] each."""
    config, device, length = model.config, model.device, len(text)
    blocks = -(-length // BLOCK)
    cache = KVCache.allocate(config, blocks + 1, BLOCK, kv_dtype, device, slots=1, inputs_dtype=model.dtype)
    tables = torch.arange(1, blocks + 1, dtype=torch.int32, device=device)[None]
    columns = StepColumns(
        *(torch.tensor(each, dtype=torch.int32, device=device) for each in ([0], [0], [0], [length], [0, length]))
    )
    ids = torch.tensor([text], dtype=torch.int32, device=device)
    tokens = model.operations.step_tokens(ids, tables[:, None], columns, length, BLOCK)
    attention = model.operations.attention(
        AttentionShape(
            max_rows=1,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            block_size=BLOCK,
            max_context=blocks * BLOCK,
            dtype=model.dtype,
            kv_dtype=kv_dtype,
            device=device,
            others=config.other_heads,
            latent=config.usual_heads.latent,
        )
    )
    nothing = torch.zeros_like(columns.rows)
    batch = AttentionBatch(
        (tables,), columns.rows, columns.counts, columns.query_starts, nothing, nothing, 0, (length,), (length,)
    )
    logits = model.logits(model.forward(tokens, batch, cache, attention))[:-1].float()
    log_probabilities = logits.log_softmax(-1).gather(1, tokens.ids[1:, None]).squeeze(1)
    return log_probabilities.double().cpu(), logits.argmax(-1).cpu()


def compare(variant: Variant, reading: Reading, base: Reading) -> tuple[str, ...]:
    """A row of the table: one variant compared with the baseline."""
    difference = (reading.log_probabilities - base.log_probabilities).abs()
    figures = (float(difference.mean()), float(difference.quantile(0.99)), float(difference.max()))
    agreement = float((reading.top_tokens == base.top_tokens).double().mean())
    return (*variant.label, f"{reading.perplexity:.3f}", *(f"{figure:.4f}" for figure in figures), f"{agreement:.1%}")


def run(path: Path, device: torch.device) -> tuple[int, list[tuple[str, ...]]]:
    """The number of predicted tokens, and the rows of the table."""
    rows: list[tuple[str, ...]] = []
    base: Reading | None = None
    for variant in variants(device):
        reading = read(path, variant, device)
        base = base or reading
        rows.append(compare(variant, reading, base))
        print(*rows[-1], flush=True)
    return len(base.log_probabilities) if base else 0, rows


def run_checkpoints(path: Path, device: torch.device) -> tuple[int, list[tuple[str, ...]]]:
    """As `run`, for the formats of published checkpoints; the model's own weights first."""
    plain = Variant(torch.bfloat16 if device.type == "cuda" else torch.float32)
    source = path if path.is_dir() else converted_folder(path, torch.float32, default_cache_dir())
    base = read(source, plain, device)
    rows: list[tuple[str, ...]] = []
    for name, scheme in {plain.label[0]: None, **SCHEMES}.items():
        with TemporaryDirectory() as folder:
            made = None if scheme is None else write_quantized(source, Path(folder) / "quantized", scheme)
            reading = base if made is None else read(made, plain, device)
            bits = 8.0 * plain.dtype.itemsize if made is None else bits_of_a_weight(made, source)
        rows.append((name, f"{bits:.2f}", *compare(plain, reading, base)[2:]))
        print(*rows[-1], sep="; ", flush=True)
    return len(base.log_probabilities), rows


def main() -> None:
    parser = CommandLine("accuracy", __doc__)
    parser.add_argument("--checkpoints", action="store_true", help="the formats of published checkpoints instead.")
    parser.add_argument("--model", type=Path, help="Hugging Face folder or GGUF file. Default: the bundled model.")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda. Default: auto.")
    options = parser.parse_args()
    path = options.model or bundled_model_path()
    with parser.checked():
        device = resolve_device(options.device)
        tokens, rows = run_checkpoints(path, device) if options.checkpoints else run(path, device)
    what, flag, header = "fp8", "", HEADER
    if options.checkpoints:
        what, flag, header = "quantized checkpoints", " --checkpoints", CHECKPOINT_HEADER
    kernels, where = "plain torch", None
    if device.type == "cuda":
        kernels, where = "Triton", f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    print(table(header, rows))
    named = 1 if options.checkpoints else 2
    title = f"{tokens:,} tokens, teacher forcing; differences of log-probabilities are from the first row's"
    record(
        f"Accuracy of {what}, {path.stem}, {kernels}",
        "Accuracy",
        f"python -m benchmarks.accuracy{flag}" + (f" --model {path.name}" if options.model else ""),
        [(f"perplexity, {' and '.join(dict.fromkeys(row[:named]))}", row[-len(FIGURES)]) for row in rows],
        tables=[Table(title, header, rows)],
        device=where,
    )


if __name__ == "__main__":
    main()
