"""Steps of single tokens, replayed from two CUDA graphs: the forward pass up to the logits, and the draw.

The first graph leaves its members' scores in fixed buffers; the second reads them there once the step's masks are
complete. A step is padded to one of the graphs' sizes with members in the padding row, and members that do not sample
draw for that row.
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
    """Owns the graphs and the buffers between them; `capture` makes both. The arguments are the runner's."""

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
        self._scores: Scores  # a step's; exists once there are graphs

    @torch.inference_mode()
    def capture(self, sizes: list[int], logits: Tensor, *, timed: bool) -> None:
        """Capture passes of those sizes that are worthwhile. `logits` [maximum rows, vocab] becomes the buffer of their
        logits.
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
        """The three functions to capture: padding before a pass, a pass of few layers, and a whole pass."""
        model, cache = self._model.abridged(self._cache)

        def whole(size: int) -> None:
            inputs = self._rows.decode_inputs(size)
            logits, rows, positions = self._scores.first(size)
            hidden = self._model.forward(inputs.tokens, inputs.batch, self._cache, self._attention)
            self._model.logits_into(hidden, logits)
            rows.copy_(inputs.sampling)
            torch.add(inputs.tokens.positions, 1, out=positions)

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
        """The graph size that the step is padded to; None if it is not replayed."""
        return self.graphs.size_for(step.num_members) if step.num_tokens == step.num_members else None

    def launch(self, step: Step, size: int) -> Scores:
        """Launch a step's pass; returns the scores of all its members [N], as views of the buffers."""
        self._rows.send(step.padded_to(size, self._rows.padding))
        (self.adapted if step.adapted else self.graphs).replay(size)
        return self._scores.first(step.num_members)

    def draw(self, step: Step, rows: Sequence[int], masks: StepMasks | None) -> Tensor:
        """Draw a token for each member [N] of the step whose scores are in the buffers; valid until the next draw.

        Tokens of the sampling members are written to their rows, `rows`; the scores of these rows must not change. The
        other members get an arbitrary token.
        """
        size = self.padded(step.num_members)
        if masks is not None:
            places = np.full(size, ANY, np.int32)
            places[: step.num_members][step.samples] = masks.places
            self._masks.send(masks._replace(places=places))
        kind = DrawKind(self._sampler.work(rows), masks is not None)
        return self.draws.run(size, kind)[: step.num_members]

    def _draw(self, size: int, kind: DrawKind) -> Tensor:
        """Choose tokens by the scores in the buffers and write them to the rows; a graph captures this."""
        logits, rows, positions = self._scores.first(size)
        bitmask = self._masks.of_step(size) if kind.masked else None
        tokens = self._sampler.choose(logits, rows, positions, self._rows.token_ids, bitmask, kind.work)
        self._rows.write_sampled(rows, positions, tokens)
        return tokens
