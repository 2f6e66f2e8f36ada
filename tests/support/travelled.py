"""A frame as the other side reads it, and what to send."""

from __future__ import annotations

from typing import Any

import msgspec

from thothy_ai.engine.api import FinishReason, GenerationResult, LogitBias, SamplingParams, Usage
from thothy_ai.engine.wire.codec import FrameBuffer, Raw
from thothy_ai.engine.wire.protocol import Frame, Submit, decode, encode

RESULT = GenerationResult("a", "text 🙂", (1, 2, 3), FinishReason.LENGTH, Usage(4, 2, 3, 0.25, 1))

ASKING = SamplingParams(
    min_tokens=3,
    stop_token_ids=(5, 6),
    frequency_penalty=0.5,
    presence_penalty=-0.5,
    logit_bias=(LogitBias(3, 1.5), LogitBias(4, -100.0)),
    logprobs=2,
)


def submit_of(id_: str, **fields: Any) -> Submit:
    """A request of these fields, whatever they are."""
    return Submit(id_, Raw(msgspec.msgpack.encode({"id": id_} | fields)))


def travelled(frame: Frame) -> Frame:
    (payload,) = FrameBuffer().feed(encode(frame))
    return decode(payload)
