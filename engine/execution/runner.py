"""Runs a step on the device: builds its inputs there, computes logits, samples.

Knows steps, but no sequences or requests. The host waits only in `StepHandle.read`, which the caller calls at its own
time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import product
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.errors import one_line
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import (
    MAX_NEW_MASKS,
    Int32,
    Start,
    StartedRows,
    StateCopies,
    Step,
    StepMasks,
    remembered_masks,
)
from thothy_ai.engine.execution.adapters import DeviceAdapters
from thothy_ai.engine.execution.decode_steps import DecodeSteps
from thothy_ai.engine.execution.device import use_device
from thothy_ai.engine.execution.graphs import Decided, alone, graph_sizes
from thothy_ai.engine.execution.mask_table import MaskTable
from thothy_ai.engine.execution.memory import is_out_of_memory
from thothy_ai.engine.execution.mixed_graphs import MAX_TOKENS, Body, MixedGraphs
from thothy_ai.engine.execution.rows import Rows
from thothy_ai.engine.execution.sampler import Sampler
from thothy_ai.engine.execution.step_handle import Scores, StepHandle
from thothy_ai.engine.execution.timing import CudaTimer, HostTimer
from thothy_ai.engine.execution.transfers import Readback, send
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.layers.adapted import HostWeights
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.models.ranks import Ranks
from thothy_ai.kernels.paged import Attention, LayerCache
from thothy_ai.kernels.step import StepTokens

log = logging.getLogger(__name__)

_USUAL = tuple(  # sampling that job kinds use
    SamplingParams(temperature=temperature, top_p=top_p, repetition_penalty=penalty)
    for temperature, top_p in ((0.8, 0.9), (0.8, 1.0), (0.0, 1.0))
    for penalty in (1.0, 1.1)
)
_UNUSUAL = tuple(  # one example of each further kind of draw
    SamplingParams(temperature=temperature, top_p=top_p, frequency_penalty=0.1, logprobs=1)
    for temperature, top_p in ((0.8, 0.9), (0.8, 1.0), (0.0, 1.0))
)
_FEW = (16, 32, 64, 128)  # tokens; steps this small use other kernels


class StepRunner(Protocol):
    """Runs steps, on one device or on several."""

    def forward(self, step: Step, /) -> StepHandle:
        """Launch the step's forward pass, up to its logits."""
        ...

    def sample(self, handle: StepHandle, masks: StepMasks | None, /) -> None:
        """Draw the step's tokens into the rows, under the masks if there are any; may be repeated after a failure."""
        ...


def sample_or_retry(runner: StepRunner, handle: StepHandle, masks: StepMasks | None) -> None:
    """Sample; after running out of memory, free cached memory and try once more."""
    try:
        runner.sample(handle, masks)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        log_out_of_memory(error, handle.step)
    else:
        return
    torch.cuda.empty_cache()
    runner.sample(handle, masks)


def log_out_of_memory(error: RuntimeError, step: Step) -> None:
    reason = one_line(error, most=200)
    log.warning("a step of %d members and %d tokens ran out of memory: %s", step.num_members, step.num_tokens, reason)


class Runner:
    """Owns the rows, the KV cache, the graphs, the masks and the sampler's state on one device.

    With several `ranks`, the first one takes all decisions that could differ between them.
    """

    def __init__(
        self,
        model: Model,
        cache: KVCache,
        attention: Attention,
        config: EngineConfig,
        device: torch.device,
        ranks: Ranks | None = None,
    ) -> None:
        self._model, self._cache, self._attention, self._device = model, cache, attention, device
        use_device(device)
        self._max_rows, self._longest = rows, longest = config.max_rows, config.budgeted_context
        tables, operations = len(config.windows), model.operations
        self._rows = Rows(rows, config.max_members, longest, config.block_size, tables, operations, device)
        self._masks = MaskTable(rows, model.config.vocab_size, device)
        self._sampler = Sampler(rows, model.config.vocab_size, device)
        self._timer = CudaTimer if device.type == "cuda" else HostTimer
        self._graph_sizes = graph_sizes(rows) if config.graphs and model.captures else []
        decided: Decided = alone if ranks is None else ranks.decided
        self._decided = decided
        self._decode = DecodeSteps(model, cache, attention, self._rows, self._masks, self._sampler, decided)
        self._times_sizes, self._weighs = config.drafts, not config.keeps_all
        self._last: StepHandle | None = None
        self._mixed, self._mixed_adapted = MixedGraphs(decided), MixedGraphs(decided)
        self._adapters: DeviceAdapters | None = None  # until the first adapter is loaded
        mixed = config.graphs and model.captures_between_attention and config.token_budget <= MAX_TOKENS
        self._mixed_budget = config.token_budget if mixed else None

    @property
    def replays(self) -> int:
        """Number of steps replayed from graphs so far."""
        decode, mixed = self._decode, (self._mixed, self._mixed_adapted)
        return decode.graphs.replays + decode.adapted.replays + sum(each.replays for each in mixed)

    @property
    def seconds_by_size(self) -> Mapping[int, float]:
        """Seconds of a decode step without KV, by the size that it is padded to; empty if none was timed."""
        return self._decode.graphs.seconds

    @torch.inference_mode()
    def forward(self, step: Step) -> StepHandle:
        """Launch the step's forward pass, up to its logits."""
        use_device(self._device)
        if (last := self._last) is not None and last.scores is not None:
            if last.sampled is None:  # all parts of a step are launched before they are sampled
                last.leave_buffers()
            else:
                last.scores = None
        self._sampler.start_rows(step.started, step.biases)
        timer, replays = self._timer(), self.replays
        timer.start()
        self._copy(step.restored)
        if self._adapters is not None:
            self._adapters.place(step.placed)
        if (size := self._decode.size_for(step)) is not None:
            if self._adapters is not None:
                self._adapters.send(step, size)
            scores = self._decode.launch(step, size)
        else:
            sampling = step.num_sampling
            # Padded to a graph size, since a step of another size would wait for cuBLAS to load its kernels.
            columns = np.zeros((3, self._decode.padded(sampling)), np.int32)
            columns[:, :sampling] = np.stack((step.counts.cumsum() - 1, step.rows, step.ends))[:, step.samples]
            last, rows, positions = send(columns, self._device).to(torch.int64)
            logits = self._model.logits(self._hidden(step, last))
            scores = Scores(logits[:sampling], rows[:sampling], positions[:sampling])
        self._copy(step.kept_after)
        importance = self._weigh(step.weighed) if len(step.weighed) else None
        timer.stop()
        self._last = StepHandle(step, timer, scores, size is not None, self.replays > replays, importance=importance)
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
            bitmask = None if masks is None else self._masks.rows(masks)
            tokens = self._sampler.sample(*scores, self._rows.token_ids, bitmask, rows, ends)
            self._rows.write_sampled(scores.rows, scores.positions, tokens)
        handle.sampled = Readback(tokens)
        handle.logprobs = self._sampler.logprobs.begin(scores.logits, tokens, members)
        handle.timer.stop()

    @torch.inference_mode()
    def warm_up(self, tokens: int) -> None:
        """Run small steps and the largest one, of `tokens` tokens of no sequence, sample all rows as job kinds do,
        compute logits of all sizes, and capture the graphs.

        Kernels are thus compiled, and memory runs out, before the first request and not in service. Triton compiles
        without the interpreter's lock, so that each kind of draw is compiled on a separate thread meanwhile.
        """
        rows, config, dtype, device = self._max_rows, self._model.config, self._model.dtype, self._device
        logits = torch.zeros(rows, config.vocab_size, dtype=dtype, device=device)
        kinds = product(_USUAL + _UNUSUAL, (None, self._warm_up_masks()))
        with ThreadPoolExecutor() as pool:
            draws = [pool.submit(self._warm_up_draw, logits, *kind) for kind in kinds]
            for counts in self._warm_up_steps(tokens):
                last = torch.zeros(rows, dtype=torch.int64, device=device)
                self._model.logits(self._hidden(Step.of_padding(self._rows.padding, counts), last))
            hidden = torch.zeros(rows, config.hidden_size, dtype=dtype, device=device)
            for size in self._graph_sizes:  # cuBLAS loads its kernels at first use
                self._model.logits(hidden[:size])
            scores = self._model.logits(hidden)
            for draw in draws:
                draw.result()
        unowned = np.array([self._rows.padding], np.int32)
        self._copy(StateCopies(unowned, unowned))
        if self._weighs:
            self._weigh(np.zeros(1, np.int32))
        if self._graph_sizes:
            self._decode.capture(self._graph_sizes, scores, timed=self._times_sizes)
        if self._mixed_budget is not None:
            self._capture_mixed(self._mixed, lambda some, call: self._model.body(some, self._cache, call))
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    @torch.inference_mode()
    def start_adapters(self, slots: int, rank: int, tokens: int, weights: Callable[[int], HostWeights]) -> None:
        """Make room for `slots` adapters of at most `rank`, in steps of at most `tokens` tokens, and capture graphs for
        steps with adapters; `weights` finds an adapter by its number. Can be called between two steps, even if the last
        one is not sampled yet. An error leaves everything as it was.
        """
        use_device(self._device)
        if self._last is not None and self._last.sampled is None:
            self._last.leave_buffers()
        bank = self._model.adapters
        try:
            bank.allocate(slots, rank, max(tokens, self._max_rows), self._model.dtype, self._device)
            adapters = DeviceAdapters(bank, self._device, weights)
            if self._device.type == "cuda":
                self._warm_up_adapters(tokens)
        except BaseException:
            bank.release()
            self._decode.drop_adapted()
            self._mixed_adapted = MixedGraphs(self._decided)
            raise
        self._adapters = adapters

    def _warm_up_adapters(self, tokens: int) -> None:
        """Run steps with adapters, and capture their graphs, so that nothing is compiled in service."""
        bank = self._model.adapters
        for power in range(tokens.bit_length()):  # the sort is compiled for several lengths
            bank.begin(1 << power)
        for counts in self._warm_up_steps(tokens):
            last = torch.zeros(self._max_rows, dtype=torch.int64, device=self._device)
            inputs = self._rows.apply(Step.of_padding(self._rows.padding, counts))
            bank.begin(sum(counts))
            self._model.forward(inputs.tokens, inputs.batch, self._cache, self._attention, last)
            bank.end()
        if self._graph_sizes:
            self._decode.capture_adapted()
        if self._mixed_budget is not None:
            self._capture_mixed(self._mixed_adapted, self._adapted_body, self._mixed)
            bank.end()
        torch.cuda.synchronize(self._device)

    def _adapted_body(self, tokens: StepTokens, attention: Attention) -> tuple[Tensor, Tensor]:
        self._model.adapters.begin(len(tokens.ids))
        return self._model.body(tokens, self._cache, attention)

    def _capture_mixed(self, graphs: MixedGraphs, body: Body, beside: MixedGraphs | None = None) -> None:
        config, budget = self._model.config, self._mixed_budget or 0
        ids = torch.zeros(2 + len(self._rows.block_tables), budget, dtype=torch.int64, device=self._device)
        ids[0] = torch.arange(budget, device=self._device) % config.vocab_size
        graphs.capture(ids, config.num_layers, body, ends=self._model.ends_with_attention, beside=beside)

    def _warm_up_steps(self, tokens: int) -> Iterator[list[int]]:
        """Token counts of members, for steps that together use all kernels; the last step has `tokens`, if they fit."""
        prompts = [2] * min(self._max_rows, tokens // 2)  # recurrences use other kernels for many prompts
        yield from filter(None, ([1], [1] * self._max_rows, prompts))
        for total in (*_FEW, tokens):
            most = min(total, self._max_rows * self._longest)
            yield sorted(min(self._longest, most - begin) for begin in range(0, most, self._longest))

    def _warm_up_masks(self) -> Tensor:
        """Masks of all rows, after steps with few and many new ones, so that pinned memory of all sizes is cached."""
        vocab, most = self._model.config.vocab_size, MAX_NEW_MASKS * self._max_rows
        places = np.arange(self._max_rows, dtype=np.int32) + 1 + remembered_masks(vocab)
        new, targets = np.full((most, -(-vocab // 32)), -1, np.int32), np.resize(places, most)
        for count in (*(1 << power for power in range(most.bit_length())), most):
            bitmask = self._masks.rows(StepMasks(places, new[:count], targets[:count]))
        return bitmask

    @torch.inference_mode()
    def _warm_up_draw(self, logits: Tensor, sampling: SamplingParams, bitmask: Tensor | None) -> None:
        """Draw for all rows, with a temporary sampler."""
        use_device(self._device)  # a setting of each thread, like inference mode
        members, vocab = logits.shape
        sampler = Sampler(members, vocab, self._device)
        sampler.start_rows(StartedRows.of([Start(0, sampling, 0)]))
        rows = torch.zeros(members, dtype=torch.int64, device=self._device)
        tokens = sampler.sample(logits, rows, rows + 1, self._rows.token_ids, bitmask, members=[0] * members)
        sampler.logprobs.begin(logits, tokens, [0] * members)

    def _weigh(self, blocks: Int32) -> Readback:
        """The importance of these blocks, over all layers."""
        sent = send(blocks, self._device)
        importance = torch.zeros(len(blocks), dtype=torch.float32, device=self._device)
        for layer in self._cache.layers:
            if isinstance(layer, LayerCache):
                self._model.operations.add_importance(layer, sent, importance)
        return Readback(importance)

    def _copy(self, copies: StateCopies) -> None:
        if len(copies.targets):
            sources, targets = send(np.stack(copies), self._device)
            for stack in self._cache.stacks:
                self._model.operations.copy_states(stack, sources, targets)

    def _hidden(self, step: Step, wanted: Tensor) -> Tensor:
        """Final hidden states [R, hidden] of the step's tokens at places `wanted` [R]."""
        tokens, batch, _ = self._rows.apply(step)
        mixed = self._mixed_adapted if step.adapted else self._mixed
        size = mixed.size_for(step.num_tokens)
        with nullcontext() if self._adapters is None else self._adapters.reading(step, size):
            if size is not None:
                self._attention.plan(batch)
                return self._model.tail(*mixed.run(size, tokens, self._attention), wanted)
            return self._model.forward(tokens, batch, self._cache, self._attention, wanted)
