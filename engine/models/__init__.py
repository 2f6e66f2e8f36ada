"""Decoder families: one module each for what differs, `decoder` for what they share."""

from __future__ import annotations

from thothy_ai.engine.models import llama, mistral, qwen2, qwen3
from thothy_ai.engine.models.family import Family

FAMILIES: dict[str, Family] = {module.FAMILY.model_type: module.FAMILY for module in (llama, mistral, qwen2, qwen3)}
