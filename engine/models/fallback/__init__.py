"""Any other decoder: what transformers knows and no family here implements runs through its model, slower."""

from __future__ import annotations

from thothy_ai.engine.models.fallback.family import ThroughTransformers
from thothy_ai.engine.models.fallback.refusals import CHECKED, REFUSED

__all__ = ["CHECKED", "REFUSED", "ThroughTransformers"]
