"""A kernel and its oracle have the same names and signatures, so that one takes the other's place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest
from triton.runtime.jit import KernelInterface

from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.reference.operations import ReferenceOperations
from thothy_ai.kernels.triton.operations import TritonOperations

NAMES = (
    "activation",
    "norm",
    "layernorm",
    "matmul",
    "int8_matmul",
    "block_matmul",
    "grouped",
    "quantize",
    "rope",
    "latents",
    "rows",
    "states",
    "scores",
    "importance",
    "attention",
    "sampling",
    "philox",
    "experts",
    "operations",
)
ONLY_IN_REFERENCE = {
    "quantize": {"dequantize", "dequantize_blocks"},  # for tests, and for matmuls that have no fp8
    "grouped": {"packed", "unpacked", "dequantized", "inputs_of"},  # once at load, and for tests
    "rope": {"apply_rope", "write_kv", "write_slots"},  # the steps of `rotate_and_cache`, which is one kernel in Triton
    "attention": {"paged_attention", "gather_blocks"},  # the steps of `PagedAttention`
    "sampling": {  # the steps of `TokenChooser`
        "choose", "penalize_repetition", "apply_bitmask", "gumbel", "sample_unfiltered", "sample_filtered", "survivors",
    },
    "philox": {"philox", "token_words", "vocabulary_words"},  # Triton's are device functions
    "experts": {"activated"},  # the kernel of gate and up ends with it
    "operations": {"ReferenceOperations"},
}  # fmt: skip
ONLY_IN_TRITON = {
    "matmul": {"cublas_matmul"},  # for many rows; benchmarks hold our own kernel against it
    "quantize": {"empty_quantized"},  # room for what kernels write
    "operations": {"TritonOperations"},
}


def public(module: ModuleType) -> dict[str, Callable[..., object]]:
    """Functions and classes that the module or its package defines; device functions can't be called by the host."""
    found = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {
        name: value
        for name, value in found.items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__.startswith(module.__name__)
        and not isinstance(value, KernelInterface)
    }


def signatures(value: Callable[..., object]) -> dict[str, str]:
    """Parameters and annotations of a function, or of a class's public methods."""
    if not inspect.isclass(value):
        return {"": str(inspect.signature(value))}
    methods = {name: vars(value)[name] for name in vars(value) if not name.startswith("_") or name == "__call__"}
    made = {name: str(inspect.signature(method)) for name, method in methods.items() if inspect.isfunction(method)}
    return made | {"__init__": _constructor(value)}


def _constructor(value: type) -> str:
    """Its parameters, except those with a default: tunings that only tests and benchmarks give."""
    signature = inspect.signature(value)
    needed = [each for each in signature.parameters.values() if each.default is inspect.Parameter.empty]
    return str(signature.replace(parameters=needed, return_annotation=inspect.Signature.empty))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_functions_in_both(name: str) -> None:
    reference, triton = (public(import_module(f"thothy_ai.kernels.{kind}.{name}")) for kind in ("reference", "triton"))
    assert reference.keys() - triton.keys() == ONLY_IN_REFERENCE.get(name, set())
    assert triton.keys() - reference.keys() == ONLY_IN_TRITON.get(name, set())
    for function in reference.keys() & triton.keys():
        assert signatures(reference[function]) == signatures(triton[function]), function


def operations(kind: object) -> dict[str, Callable[..., object]]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def test_operations_are_the_same_in_both_and_in_the_protocol() -> None:
    reference, triton = operations(ReferenceOperations()), operations(TritonOperations())
    assert reference.keys() == triton.keys() == operations(Operations).keys()
    for name in reference:
        assert signatures(reference[name]) == signatures(triton[name]), name
        assert reference[name].__name__ == triton[name].__name__
