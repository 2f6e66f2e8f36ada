"""Checks a drain's tokens, with any weights, even random ones, whose text cannot be judged by reading it.

Some finished jobs are computed again through the plain torch references, each alone, prompt and output in one pass, in
a separate cache: without our kernels, batches, prefix cache, chunks, graphs or overlap. There, each token that the
engine chose must have nearly the log-probability of the best token; rounding in another order costs hundredths of a
nat. The check is sensitive: over eight random layers, 24 tokens after a prompt of 600 missed the best one by up to
0.3 nats if one token of the prompt was changed, and by up to 3 nats if eight were.

Random recurrent layers before random experts magnify rounding without bound: over 40 of them, the references choose
entirely different tokens in bfloat16 and in float32, and so do those of `transformers`. A failed check is therefore
repeated with references that round the inputs of recurrences differently. The check is inconclusive if these differ
from the plain references by more than the tolerance, and the engine's tokens by at most `_GAP_OF_NOISE` times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from thothy_ai.bench.drain import Drained
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.execution.device import resolve_kv_dtype
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.model import Model
from thothy_ai.kernels.paged import AttentionBatch, AttentionShape
from thothy_ai.kernels.reference import states as reference
from thothy_ai.kernels.reference.operations import ReferenceOperations
from thothy_ai.kernels.step import StepTokens

MIN_JOBS, MAX_JOBS = 4, 8  # limits of the jobs to check, otherwise a quarter of the drain
# Tolerances in nats, for the worst token and for the mean of all. Random layers magnify rounding: with bfloat16, 32
# layers turn it into 0.06 (root mean square), and the worst of 2,000 tokens lies 0.22 to 0.34 below the best. A number
# near the middle between two fp8 numbers can be rounded to either, which with fp8 weights makes 0.6 (all measured with
# llama-8b). A token from another context lies 5.6 below the best one on average.
_TOLERANCE = {torch.float32: (1e-3, 1e-4), torch.float16: (0.1, 0.01), torch.bfloat16: (0.5, 0.03)}
_FP8_KV_TOLERANCE = (1.0, 0.1)
_FP8_WEIGHTS_TOLERANCE = (4.0, 1.0)
_MEAN_TO_WORST = 4  # the ratio of both tolerances if one is given on the command line
_GAP_OF_NOISE = 5  # times the noise: the mean gap of unrelated tokens (3.4 measured)
_BLOCK = 16
_ROWS_AT_ONCE = 128  # rows of logits, each a whole vocabulary in float32


class WrongTokensError(EngineError):
    """The engine chose tokens that the references would not have chosen."""

    code = "wrong_tokens"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check. Gaps are in nats: the best token's log-probability minus the chosen one's.

    `noise` is set if the check is inconclusive: how far other rounding moves the gaps of the first job, on average.
    """

    jobs: int
    tokens: int
    worst: float
    mean: float
    agreeing: float  # share of tokens that are the references' own choice
    tolerance: float
    noise: float | None = None


def check(
    drained: Drained,
    model: Model,
    options: EngineOptions,
    tolerance: float | None = None,
    on_job: Callable[[int, int], None] = lambda _, __: None,
) -> Checked:
    """Check some jobs, spread over the drain. WrongTokensError if a gap exceeds `tolerance` nats, or the mean a quarter
    of it.

    Without `tolerance`, the limits are what rounding explains in the drain's types. `on_job` receives the index of each
    job and the number of jobs.
    """
    if tolerance is not None:
        limit, mean_limit = tolerance, tolerance / _MEAN_TO_WORST
    elif options.weights == "fp8":
        limit, mean_limit = _FP8_WEIGHTS_TOLERANCE
    else:
        limit, mean_limit = _FP8_KV_TOLERANCE if options.kv_dtype == "fp8" else _TOLERANCE[model.dtype]
    oracle = _Oracle(model, options, ReferenceOperations())
    sample = spread(drained.finished, min(MAX_JOBS, max(MIN_JOBS, len(drained.finished) // 4)))
    gaps = []
    for index, (request, output) in enumerate(sample):
        on_job(index, len(sample))
        gaps.append(oracle.gaps(request.prompt, output))
    together = torch.cat(gaps)
    checked = Checked(
        jobs=len(sample),
        tokens=len(together),
        worst=float(together.max()),
        mean=float(together.mean()),
        agreeing=float((together == 0).float().mean()),
        tolerance=limit,
    )
    if checked.worst <= limit and checked.mean <= mean_limit:  # false for NaN
        return checked
    shaken = _Oracle(model, options, _OtherRounding())
    noise = float((gaps[0] - shaken.gaps(sample[0][0].prompt, sample[0][1])).abs().mean())
    if noise > mean_limit and checked.mean <= _GAP_OF_NOISE * noise:
        return replace(checked, noise=noise)
    for (request, _), gap in zip(sample, gaps, strict=True):
        if not float(gap.max()) <= limit:
            raise WrongTokensError(
                f"job {request.id}: token {int(gap.argmax())} of its output lies {float(gap.max()):.3f} nats below the "
                f"best one by the references, and {limit} is what rounding explains; {int((gap > limit).sum())} of "
                f"{len(gap)} tokens do"
            )
    raise WrongTokensError(
        f"the tokens of {len(sample)} jobs lie {checked.mean:.3f} nats below the best ones by the references on "
        f"average, and {mean_limit:g} is what rounding explains"
    )


def spread(
    finished: Sequence[tuple[CoreRequest, tuple[int, ...]]], count: int
) -> list[tuple[CoreRequest, tuple[int, ...]]]:
    """At most `count` jobs at even distances, including the first and the last."""
    last = len(finished) - 1
    places = sorted({round(index * last / max(1, count - 1)) for index in range(count)})
    return [finished[place] for place in places]


class _OtherRounding(ReferenceOperations):
    """The references, with the values that recurrences read moved by up to one unit in the last place."""

    @staticmethod
    def gated_delta(mixed: Tensor, *given: Any) -> Tensor:
        return _moved(reference.gated_delta(mixed, *given), mixed.dtype)

    @staticmethod
    def state_space(mixed: Tensor, *given: Any) -> Tensor:
        return _moved(reference.state_space(mixed, *given), mixed.dtype)


def _moved(read: Tensor, dtype: torch.dtype) -> Tensor:
    """Move the values in place, since layers pass in the tensor to fill."""
    signs = torch.arange(read.numel(), device=read.device).view_as(read) % 3 - 1
    return read.mul_(1 + torch.finfo(dtype).eps * signs)


class _Oracle:
    """The model on reference operations, one sequence at a time."""

    def __init__(self, model: Model, options: EngineOptions, operations: ReferenceOperations) -> None:
        self._model = replace(model, operations=operations)
        self._kv_dtype = resolve_kv_dtype(options.kv_dtype, model.dtype, model.device)

    @torch.inference_mode()
    def gaps(self, prompt: Sequence[int], output: Sequence[int]) -> Tensor:
        """Gaps [n] of the n output tokens after the prompt, float32."""
        hidden = self._hidden([*prompt, *output[:-1]])[len(prompt) - 1 :]
        chosen = torch.tensor(output, device=hidden.device)
        gaps = []
        for rows, tokens in zip(hidden.split(_ROWS_AT_ONCE), chosen.split(_ROWS_AT_ONCE), strict=True):
            logits = self._model.logits(rows).float()
            # A difference of logits is one of log-probabilities.
            gaps.append(logits.amax(dim=-1) - logits.gather(-1, tokens[:, None])[:, 0])
        return torch.cat(gaps)

    def _hidden(self, tokens: Sequence[int]) -> Tensor:
        """Final hidden states [T, hidden] of all T tokens, in one pass."""
        model, length, device = self._model, len(tokens), self._model.device
        config, blocks = model.config, -(-length // _BLOCK)

        def integers(*values: int) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=device)

        cache = KVCache.allocate(
            config, blocks + 1, _BLOCK, self._kv_dtype, device, slots=1, inputs_dtype=model.dtype
        )  # fmt: skip
        positions = torch.arange(length, device=device)
        step = StepTokens(torch.tensor(tokens, device=device), positions, (positions + _BLOCK,))  # slots from block 1
        batch = AttentionBatch(
            block_tables=(torch.arange(1, blocks + 1, dtype=torch.int32, device=device)[None],),
            rows=integers(0),
            context_lens=integers(length),
            query_starts=integers(0, length),
            shared_lens=integers(0),
            group_sizes=integers(0),
            num_decode=int(length == 1),
            query_lens=(length,),
            kv_lens=(length,),
        )
        shape = AttentionShape(
            max_rows=1,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            block_size=_BLOCK,
            max_context=blocks * _BLOCK,
            dtype=model.dtype,
            kv_dtype=self._kv_dtype,
            device=device,
            others=config.other_heads,
            latent=config.usual_heads.latent,
        )
        return model.forward(step, batch, cache, model.operations.attention(shape))
