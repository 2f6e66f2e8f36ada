"""The core over the arithmetic stand-in, driven to its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.arithmetic_model import arithmetic_core
from tests.support.engine_driver import EngineDriver, GrammarRequest
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.limits import EngineConfig

SMALL = EngineConfig(block_size=2, num_blocks=40, max_rows=4, token_budget=16, max_context=64)


def drive(config: EngineConfig, *, eos: frozenset[int] = frozenset()) -> EngineDriver:
    """Over the arithmetic stand-in."""
    return EngineDriver(lambda on_events: arithmetic_core(config, on_events, eos=eos))


def request(name: object, prompt: Iterable[int], max_tokens: int = 5, **kwargs: Any) -> CoreRequest:
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=kwargs.pop("ignore_eos", False))
    return GrammarRequest(id=str(name), prompt=tuple(prompt), sampling=sampling, **kwargs)
