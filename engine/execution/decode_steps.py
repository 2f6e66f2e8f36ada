"""Steps of single tokens, replayed from CUDA graphs: one of the forward pass up to the logits, one of the draw.

The first leaves the scores of its members in buffers that stay in place, where the second finds them once the step's
masks are complete. The members are padded to a size of the graphs with members in the padding row; members that do not
sample draw for that row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.api.step import ANY, Step, StepMasks
from thothy_ai.engine.execution.draws import DrawGraphs, DrawKind
from thothy_ai.engine.execution.graphs import Decided, DecodeGraphs, Forward, alone
from thothy_ai.engine.execution.mask_table import MaskTable
from thothy_ai.engine.execution.rows import Rows
from thothy_ai.engine.execution.sampler import Sampler
from thothy_ai.engine.execution.step_handle import Scores
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.model import Model
from thothy_ai.kernels.paged import Attention


class DecodeSteps:
    """Owns the graphs and the buffers between them, which `capture` makes. The arguments are the runner's."""

    def __init__(
        self,
        model: Model,
        cache: KVCache,
        attention: Attention,
        rows: Rows,
        masks: MaskTable,
        sampler: Sampler,
        decided: Decided = alone,
    ) -> None:
        self._model, self._cache, self._attention = model, cache, attention
        self._rows, self._masks, self._sampler = rows, masks, sampler
        self._decided = decided
        self.graphs, self.adapted = DecodeGraphs(decided), DecodeGraphs(decided)
        self.draws = DrawGraphs(self._draw)
        self._scores: Scores  # of a step, once there are graphs

    @torch.inference_mode()
    def capture(self, sizes: list[int], logits: Tensor, *, timed: bool) -> None:
        """Capture the passes of these sizes, as far as they are worthwhile. `logits` [most rows, vocab] becomes the
        buffer of their logits.
        """
        self._scores = Scores.buffers(logits)
        pad, abridged, whole = self._passes()
        self.graphs.capture(sizes, pad, abridged, whole, timed=timed)

    @torch.inference_mode()
    def capture_adapted(self) -> None:
        """Capture the passes of the same sizes again, for steps with adapters."""
        bank = self._model.adapters
        pad, *passes = self._passes()

        def adapted(forward: Forward) -> Forward:
            def run(size: int) -> object:
                bank.begin(size)
                try:
                    return forward(size)
                finally:
                    bank.end()

            return run

        self.adapted.capture_as(self.graphs, pad, *map(adapted, passes))

    def drop_adapted(self) -> None:
        """Free the graphs of steps with adapters, as before the first adapter was loaded."""
        self.adapted = DecodeGraphs(self._decided)

    def _passes(self) -> tuple[Callable[[int], None], Forward, Forward]:
        """What graphs capture: padding before a pass, a pass of few layers, and a whole one."""
        model, cache = self._model.abridged(self._cache)

        def whole(size: int) -> None:
            inputs = self._rows.decode_inputs(size)
            logits, rows, positions = self._scores.first(size)
            hidden = self._model.forward(inputs.tokens, inputs.batch, self._cache, self._attention)
            self._model.logits_into(hidden, logits)
            rows.copy_(inputs.sampling)
            positions.copy_(inputs.batch.context_lens)

        def abridged(size: int) -> Tensor:
            inputs = self._rows.decode_inputs(size)
            return model.forward(inputs.tokens, inputs.batch, cache, self._attention)

        def pad(size: int) -> None:
            self._rows.send(Step.of_padding(self._rows.padding, [1] * size))

        return pad, whole if model is self._model else abridged, whole

    def padded(self, members: int) -> int:
        """The smallest size of a graph for `members` members; `members` if there is none."""
        return self.graphs.size_for(members) or members

    def size_for(self, step: Step) -> int | None:
        """The size of the graphs that the step is padded to; None if it is not replayed."""
        return self.graphs.size_for(step.num_members) if step.num_tokens == step.num_members else None

    def launch(self, step: Step, size: int) -> Scores:
        """Launch the pass of a step; returns views of the buffers: the scores of all its members [N]."""
        self._rows.send(step.padded_to(size, self._rows.padding))
        (self.adapted if step.adapted else self.graphs).replay(size)
        return self._scores.first(step.num_members)

    def draw(self, step: Step, rows: Sequence[int], masks: StepMasks | None) -> Tensor:
        """Draw a token for each member [N] of the step whose scores lie in the buffers, valid until the next draw.

        The tokens of its sampling members, whose rows are `rows` and whose scores do not change, are written to the
        rows; the other members get any token.
        """
        size = self.padded(step.num_members)
        if masks is not None:
            places = np.full(size, ANY, np.int32)
            places[: step.num_members][step.samples] = masks.places
            self._masks.send(masks._replace(places=places))
        kind = DrawKind(self._sampler.work(rows), masks is not None)
        return self.draws.run(size, kind)[: step.num_members]

    def _draw(self, size: int, kind: DrawKind) -> Tensor:
        """Choose tokens by the scores in the buffers, and write them to the rows; captured in a graph."""
        logits, rows, positions = self._scores.first(size)
        bitmask = self._masks.of_step(size) if kind.masked else None
        tokens = self._sampler.choose(logits, rows, positions, self._rows.token_ids, bitmask, kind.work)
        self._rows.write_sampled(rows, positions, tokens)
        return tokens
