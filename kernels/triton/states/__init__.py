"""Recurrent layers in Triton: a short convolution, the gated delta rule and state spaces, token by token or in chunks.

Members with a single token are computed in place, and longer ones in chunks. The host never waits, and a CUDA graph can
capture a step of single tokens.
"""

from thothy_ai.kernels.triton.states.convolution import convolve
from thothy_ai.kernels.triton.states.copies import copy_states
from thothy_ai.kernels.triton.states.delta_rule import gated_delta
from thothy_ai.kernels.triton.states.gated_norms import gate_rms_norm, gated_rms_norm
from thothy_ai.kernels.triton.states.state_spaces import state_space

__all__ = ["convolve", "copy_states", "gate_rms_norm", "gated_delta", "gated_rms_norm", "state_space"]
