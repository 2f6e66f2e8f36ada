"""MXFP4 experts (OCP Microscaling Formats, 1.0), as GPT-OSS is published: the family reads them itself."""

from __future__ import annotations

from thothy_ai.engine.models.quantized.layout import Quantization
from thothy_ai.engine.models.quantized.settings import Settings

FAMILY = "gpt_oss"  # the only one that is published so


def mxfp4(settings: Settings) -> Quantization:
    """No linear layer is packed; experts are."""
    return Quantization(settings.method, (), mxfp4_experts=True)
