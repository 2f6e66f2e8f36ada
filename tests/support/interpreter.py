"""Triton's interpreter without the work that it repeats at every call of a device function; processes without it."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest
from triton.runtime import interpreter


def compiling_environment() -> dict[str, str]:
    """Of a process whose kernels are compiled instead of interpreted."""
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


def quicken(monkeypatch: pytest.MonkeyPatch) -> None:
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
