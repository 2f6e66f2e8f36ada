"""Kernels in Triton, for GPUs: the functions of `kernels.reference`, under the same names."""
