"""Whether a model will load, and how much memory it takes, found out without loading it.

    check_model ──▶ contents     configuration, tensors, tokenizer, as the loader reads them
                ──▶ memory       weights, workspace and KV tokens, as an engine plans them
                ──▶ ModelReport

Each part with an error is a problem of the report; the other parts are checked all the same.
"""

from __future__ import annotations

from thothy_ai.engine.model_check.check import check_model
from thothy_ai.engine.model_check.report import MemoryReport, ModelReport, Problem

__all__ = ["MemoryReport", "ModelReport", "Problem", "check_model"]
