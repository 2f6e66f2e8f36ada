"""Plain-torch kernels: what runs on a CPU, and the oracle of `kernels.triton`, under the same names."""
