"""Choosing tokens from logits in Triton."""

from thothy_ai.kernels.triton.sampling.token_chooser import TokenChooser

__all__ = ["TokenChooser"]
