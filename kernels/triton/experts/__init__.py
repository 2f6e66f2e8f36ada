"""Mixtures of experts in Triton: routing, sorting by expert, and a matmul for each expert's tokens."""

from thothy_ai.kernels.triton.experts.experts import Experts
from thothy_ai.kernels.triton.experts.router import route

__all__ = ["Experts", "route"]
