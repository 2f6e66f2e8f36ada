"""Choosing tokens from logits in Triton."""

from thothy_ai.kernels.triton.sampling.chooser import TokenChooser

__all__ = ["TokenChooser"]
