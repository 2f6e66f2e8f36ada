"""Each benchmark can be imported: no other test runs those that need a GPU."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import benchmarks

MODULES = [module.name for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith("__main__")])
def test_a_benchmark_can_be_imported(module: str) -> None:
    importlib.import_module(module)
