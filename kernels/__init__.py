"""Kernels of the engine, each with a plain-torch reference. They import no other part of the project."""
