"""All other decoders: a model without a family here runs, more slowly, through transformers' implementation."""

from __future__ import annotations

from thothy_ai.engine.models.fallback.family import ThroughTransformers
from thothy_ai.engine.models.fallback.refusals import CHECKED, REFUSED

__all__ = ["CHECKED", "REFUSED", "ThroughTransformers"]
