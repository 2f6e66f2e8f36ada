"""Kernels of the engine, each beside its plain-torch reference. They import no other part of the project."""
