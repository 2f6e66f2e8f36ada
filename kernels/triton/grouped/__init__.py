"""Matmuls with integer weights of 4 or 8 bits that have groups, for activations of 16 or 32 bits."""

from __future__ import annotations

from thothy_ai.kernels.triton.grouped.matmul import GroupedMatmul

__all__ = ["GroupedMatmul"]
