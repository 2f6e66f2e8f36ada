"""Triton's interpreter without the work that it repeats at every call of a device function; processes without it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter


def compiling_environment() -> dict[str, str]:
    """Of a process whose kernels are compiled instead of interpreted."""
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


def quicken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the interpreter makes anew at each launch, each operation and each tensor; results are the same."""
    _quicken_launches(monkeypatch)
    _quicken_operations(monkeypatch)
    _quicken_types(monkeypatch)


def _quicken_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch `triton.language` once per launch and module of device functions, and look each NumPy type up once."""
    patch_lang, launch, np_dtype = interpreter._patch_lang, interpreter.GridExecutor.__call__, interpreter._get_np_dtype
    patched: set[int] = set()  # modules, by their globals, since the present launch began
    scalar_dtype = cache(np_dtype)

    def patch_once(function: Any) -> Any:
        module = id(function.__globals__)
        if module in patched:
            return None  # for a device function the result is not used
        patched.add(module)
        return patch_lang(function)

    def np_dtype_once(dtype: Any) -> Any:
        return np_dtype(dtype) if dtype.scalar.is_ptr() else scalar_dtype(dtype.scalar)

    def launch_anew(executor: Any, *arguments: Any, **options: Any) -> None:
        patched.clear()
        launch(executor, *arguments, **options)

    monkeypatch.setattr(interpreter, "_patch_lang", patch_once)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", launch_anew)
    monkeypatch.setattr(interpreter, "_get_np_dtype", np_dtype_once)


def _quicken_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call built-in functions without their wrappers, and check each pair of types once."""
    builder = interpreter.interpreter_builder
    check, broadcast = TritonSemantic.binary_op_type_checking_impl, TritonSemantic.broadcast_impl_value
    settled: dict[tuple[Any, ...], tuple[Any, Any]] = {}  # types to which a pair of operands is promoted
    # Overflows would be computed at every addition and multiplication, and asserted only in debug mode.
    assert not builder.options.debug
    monkeypatch.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))

    def patch_attr(owner: Any, name: str, member: Any, _: Any, scope: Any) -> None:
        plain = getattr(member, "__wrapped__", member)  # without the check that `_semantic` is given

        def called(*arguments: Any, **options: Any) -> Any:
            options["_semantic"] = interpreter.interpreter_semantic
            return plain(*arguments, **options)

        scope.set_attr(owner, name, called)

    def check_once(semantic: Any, lhs: Any, rhs: Any, *allowed: bool, **also: bool) -> tuple[Any, Any]:
        pair = (_operand(lhs), _operand(rhs), allowed, *also.items())
        if pair not in settled:
            lhs, rhs = check(semantic, lhs, rhs, *allowed, **also)
            settled[pair] = lhs.dtype, rhs.dtype
            return lhs, rhs
        return broadcast_unlike(semantic, *map(partial(_as_type, semantic), (lhs, rhs), settled[pair]))

    def broadcast_unlike(semantic: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
        return (lhs, rhs) if lhs.shape is rhs.shape else broadcast(semantic, lhs, rhs)

    monkeypatch.setattr(interpreter, "_patch_attr", patch_attr)
    monkeypatch.setattr(TritonSemantic, "binary_op_type_checking_impl", check_once)
    monkeypatch.setattr(TritonSemantic, "broadcast_impl_value", broadcast_unlike)


def _operand(value: Any) -> Any:
    """What its promotion depends on."""
    return value.dtype.name if isinstance(value, core.tensor) else (type(value), value)


def _as_type(semantic: Any, value: Any, dtype: Any) -> Any:
    if not isinstance(value, core.tensor):
        return semantic.scalar_constant(value, dtype)
    return value if value.dtype.name == dtype.name else semantic.cast(value, dtype)


def _quicken_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each type of blocks once, and what tensors of a shape have in common."""
    make_type = core.block_type.__init__
    known: dict[tuple[Any, ...], dict[str, Any]] = {}  # attributes of types

    def make_type_once(block_type: Any, element_ty: Any, shape: Sequence[Any]) -> None:
        key = (element_ty.name, *(size.value if isinstance(size, core.constexpr) else size for size in shape))
        if key not in known:
            make_type(block_type, element_ty, shape)
            known[key] = block_type.__dict__
        block_type.__dict__ = known[key]

    @cache
    def sizes_of(shape: tuple[int, ...]) -> tuple[Any, Any]:
        return core.constexpr(math.prod(shape)), core.tuple([core.constexpr(size) for size in shape])

    def make_tensor(tensor: Any, handle: Any, type: Any) -> None:  # noqa: A002  its callers name it
        tensor.handle, tensor.type, tensor.dtype = handle, type, type.scalar
        tensor.numel, tensor.shape = sizes_of(tuple(type.shape.values) if type.is_block() else ())

    monkeypatch.setattr(core.block_type, "__init__", make_type_once)
    monkeypatch.setattr(core.tensor, "__init__", make_tensor)
