"""A frame as the other side reads it, and what to send."""

from __future__ import annotations

from thothy_ai.engine.api import FinishReason, GenerationResult, LogitBias, SamplingParams, Usage
from thothy_ai.engine.wire.protocol import Frame, FrameBuffer, decode, encode

RESULT = GenerationResult("a", "text 🙂", (1, 2, 3), FinishReason.LENGTH, Usage(4, 2, 3, 0.25, 1))

ASKING = SamplingParams(
    min_tokens=3,
    stop_token_ids=(5, 6),
    frequency_penalty=0.5,
    presence_penalty=-0.5,
    logit_bias=(LogitBias(3, 1.5), LogitBias(4, -100.0)),
    logprobs=2,
)


def travelled(frame: Frame) -> Frame:
    (payload,) = FrameBuffer().feed(encode(frame))
    return decode(payload)
