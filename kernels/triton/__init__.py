"""Triton kernels for GPUs, with the same names as the functions of `kernels.reference`."""
