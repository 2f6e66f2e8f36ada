"""A frame as the other side reads it, and a result to send."""

from __future__ import annotations

from thothy_ai.engine.api import FinishReason, GenerationResult, Usage
from thothy_ai.engine.serving.protocol import Frame, FrameBuffer, decode, encode

RESULT = GenerationResult("a", "text 🙂", (1, 2, 3), FinishReason.LENGTH, Usage(4, 2, 3, 0.25, 1))


def travelled(frame: Frame) -> Frame:
    (payload,) = FrameBuffer().feed(encode(frame))
    return decode(payload)
