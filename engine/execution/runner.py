"""Runs a step on the device: builds its inputs there, computes logits, samples.

Knows steps, not sequences or requests. Everything that could make the host wait is left to `StepHandle.read`, which the
caller calls when it chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import Int32, Start, StartedRows, Step, StepMasks, remembered_masks
from thothy_ai.engine.execution.decode_steps import DecodeSteps
from thothy_ai.engine.execution.device import use_device
from thothy_ai.engine.execution.graphs import graph_sizes
from thothy_ai.engine.execution.mask_table import MaskTable
from thothy_ai.engine.execution.mixed_graphs import MAX_TOKENS, MixedGraphs
from thothy_ai.engine.execution.rows import Rows
from thothy_ai.engine.execution.sampler import Sampler
from thothy_ai.engine.execution.scores import Scores
from thothy_ai.engine.execution.step_handle import StepHandle
from thothy_ai.engine.execution.timing import CudaTimer, HostTimer
from thothy_ai.engine.execution.transfers import Readback, send
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.model import Model
from thothy_ai.kernels.paged import Attention
from thothy_ai.kernels.step import StepTokens

_USUAL = tuple(  # what job kinds ask for
    SamplingParams(temperature=temperature, top_p=top_p, repetition_penalty=penalty)
    for temperature, top_p in ((0.8, 0.9), (0.8, 1.0), (0.0, 1.0))
    for penalty in (1.0, 1.1)
)
_UNUSUAL = tuple(  # what requests may ask for besides; one of each way of choosing
    SamplingParams(temperature=temperature, top_p=top_p, frequency_penalty=0.1, logprobs=1)
    for temperature, top_p in ((0.8, 0.9), (0.8, 1.0), (0.0, 1.0))
)
_FEW = (16, 32, 64, 128)  # tokens: other kernels run for steps this small


class Runner:
    """Owns the rows, the KV cache, the graphs, the masks and the sampler's state on one device."""

    def __init__(
        self, model: Model, cache: KVCache, attention: Attention, config: EngineConfig, device: torch.device
    ) -> None:
        self._model, self._cache, self._attention, self._device = model, cache, attention, device
        use_device(device)
        longest, rows = config.max_sequence_tokens, config.max_rows
        self._max_rows, self._longest = rows, longest
        self._rows = Rows(rows, longest, config.block_size, model.operations, device)
        self._masks = MaskTable(rows, model.config.vocab_size, device)
        self._sampler = Sampler(rows, model.config.vocab_size, device)
        self._timer = CudaTimer if device.type == "cuda" else HostTimer
        self._graph_sizes = graph_sizes(rows) if config.graphs and model.captures else []
        self._decode = DecodeSteps(model, cache, attention, self._rows, self._masks, self._sampler)
        self._last: StepHandle | None = None
        self._mixed = MixedGraphs()
        mixed = config.graphs and model.captures_between_attention and config.token_budget <= MAX_TOKENS
        self._mixed_budget = config.token_budget if mixed else None

    @property
    def replays(self) -> int:
        """Steps that were replayed from a graph, or from several, so far."""
        return self._decode.replays + self._mixed.replays

    @torch.inference_mode()
    def forward(self, step: Step) -> StepHandle:
        """Launch the step's forward pass, up to its logits."""
        use_device(self._device)
        self._make_room()
        self._sampler.start_rows(step.started, step.biases)
        timer, replays = self._timer(), self.replays
        timer.start()
        size = self._decode.size_for(step)
        scores = self._computed(step) if size is None else self._decode.launch(step, size)
        timer.stop()
        self._last = StepHandle(step, timer, scores, size is not None, self.replays > replays)
        return self._last

    @torch.inference_mode()
    def sample(self, handle: StepHandle, masks: StepMasks | None) -> None:
        """Draw the step's tokens into the rows, under the masks if there are any; may be repeated after a failure."""
        step = handle.step
        if not step.num_sampling:
            handle.sampled = Readback(handle.launched_scores().rows[:0])
            return
        handle.timer.start()
        rows = step.rows[step.samples].tolist()
        ends = step.ends[step.samples] if self._sampler.changes_scores else None
        handle.drawn_for_all = handle.in_buffers and not self._sampler.changed(rows, ends)
        if handle.drawn_for_all:
            scores, members = handle.launched_scores(), self._rows.sampling(step).tolist()
            tokens = self._decode.draw(step, rows, masks)
        else:
            scores, members = handle.sampling_scores(), rows
            tokens = self._drawn(scores, rows, masks, ends)
        handle.sampled = Readback(tokens)
        handle.logprobs = self._sampler.logprobs.begin(scores.logits, tokens, members)
        handle.timer.stop()

    def warm_up(self, tokens: int) -> None:
        """Run small steps and the largest, of `tokens` that belong to no sequence, sample all rows in the ways that job
        kinds ask for, compute logits of all sizes, and capture the graphs.

        Thus what would be compiled, or run out of memory, in service does so before the first request. Triton compiles
        without the interpreter's lock, and meanwhile each way of sampling is compiled on a thread of its own.
        """
        rows, vocab = self._max_rows, self._model.config.vocab_size
        logits = torch.zeros(rows, vocab, dtype=self._model.dtype, device=self._device)
        bitmask = self._masks_once()
        with ThreadPoolExecutor() as pool:
            ways = [pool.submit(self._sample_once, logits, *way) for way in product(_USUAL + _UNUSUAL, (None, bitmask))]
            for counts in self._steps(tokens):
                self._run_once(counts)
            scores = self._logits_once()
            for way in ways:
                way.result()
        if self._graph_sizes:
            self._decode.capture(self._graph_sizes, scores)
        if self._mixed_budget is not None:
            self._capture_mixed(self._mixed_budget)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _steps(self, tokens: int) -> Iterator[list[int]]:
        """Token counts of the members of steps that together use all kernels; the last has `tokens`, if they fit."""
        yield from ([1], [1] * self._max_rows)
        for total in (*_FEW, tokens):
            most = min(total, self._max_rows * self._longest)
            yield sorted(min(self._longest, most - begin) for begin in range(0, most, self._longest))

    @torch.inference_mode()
    def _run_once(self, counts: list[int]) -> None:
        """A step of padding members with so many tokens each."""
        last = torch.zeros(self._max_rows, dtype=torch.int64, device=self._device)
        self._model.logits(self._hidden(Step.of_padding(self._rows.padding, counts), last))

    @torch.inference_mode()
    def _logits_once(self) -> Tensor:
        """Logits of as many rows as steps are padded to: cuBLAS loads its kernels when they are first used. Returns
        those of the most rows.
        """
        config = self._model.config
        hidden = torch.zeros(self._max_rows, config.hidden_size, dtype=self._model.dtype, device=self._device)
        for size in self._graph_sizes:
            self._model.logits(hidden[:size])
        return self._model.logits(hidden)

    @torch.inference_mode()
    def _masks_once(self) -> Tensor:
        """Masks of all rows, after steps that brought few new ones and many: pinned memory of all sizes is kept."""
        vocab, most = self._model.config.vocab_size, 2 * self._max_rows
        places = np.arange(self._max_rows, dtype=np.int32) + 1 + remembered_masks(vocab)
        new, targets = np.full((most, -(-vocab // 32)), -1, np.int32), np.resize(places, most)
        for count in (*(1 << power for power in range(most.bit_length())), most):
            bitmask = self._masks.rows(StepMasks(places, new[:count], targets[:count]))
        return bitmask

    @torch.inference_mode()
    def _sample_once(self, logits: Tensor, sampling: SamplingParams, bitmask: Tensor | None) -> None:
        """Draw for all rows, with a sampler that only this call uses."""
        use_device(self._device)  # which is a thread's setting
        members, vocab = logits.shape
        sampler = Sampler(members, vocab, self._device)
        sampler.start_rows(StartedRows.of([Start(0, sampling, 0)]))
        rows = torch.zeros(members, dtype=torch.int64, device=self._device)
        tokens = sampler.sample(logits, rows, rows + 1, self._rows.token_ids, bitmask, members=[0] * members)
        sampler.logprobs.begin(logits, tokens, [0] * members)

    def _make_room(self) -> None:
        """Forget the last step's scores, or copy what it left in the graphs' buffers if it is still to be sampled: of a
        step in parts, all are launched first.
        """
        last = self._last
        if last is None or last.scores is None:
            return
        if last.sampled is None:
            last.leave_buffers()
        else:
            last.scores = None

    def _computed(self, step: Step) -> Scores:
        """Launch a step that is not replayed as a whole."""
        wanted, rows, positions = self._sampling_columns(step)
        return Scores(self._model.logits(self._hidden(step, wanted))[: len(rows)], rows, positions)

    def _hidden(self, step: Step, wanted: Tensor) -> Tensor:
        """Final hidden states [R, hidden] of the tokens `wanted` [R] among the step's."""
        tokens, batch, _ = self._rows.apply(step)
        if (size := self._mixed.size_for(step.num_tokens)) is not None:
            self._attention.plan(batch)
            return self._model.tail(*self._mixed.run(size, tokens, self._attention), wanted)
        return self._model.forward(tokens, batch, self._cache, self._attention, wanted)

    def _drawn(self, scores: Scores, members: Sequence[int], masks: StepMasks | None, ends: Int32 | None) -> Tensor:
        """Draw the tokens [R] of any step, and write them to the rows."""
        bitmask = None if masks is None else self._masks.rows(masks)
        logits, rows, positions = scores
        tokens = self._sampler.sample(logits, rows, positions, self._rows.token_ids, bitmask, members, ends)
        self._rows.write_sampled(rows, positions, tokens)
        return tokens

    @torch.inference_mode()
    def _capture_mixed(self, budget: int) -> None:
        def body(tokens: StepTokens, attention: Attention) -> tuple[Tensor, Tensor]:
            return self._model.body(tokens, self._cache, attention)

        tokens = torch.zeros(3, budget, dtype=torch.int64, device=self._device)
        tokens[0] = torch.arange(budget, device=self._device) % self._model.config.vocab_size
        self._mixed.capture(tokens, self._model.config.num_layers, body)

    def _sampling_columns(self, step: Step) -> tuple[Tensor, Tensor, Tensor]:
        """Of the sampling members [R] int64: their last token among the step's, row, position to be sampled.

        The first is padded with token 0 to a size of the graphs, whose kernels are loaded: the first step of another
        size would wait until cuBLAS has loaded its own.
        """
        sampling = step.num_sampling
        columns = np.zeros((3, self._decode.padded(sampling)), np.int32)
        columns[:, :sampling] = np.stack((step.counts.cumsum() - 1, step.rows, step.ends))[:, step.samples]
        last, rows, positions = send(columns, self._device).to(torch.int64)
        return last, rows[:sampling], positions[:sampling]
