"""A start that leaves torch out of transformers, in processes of its own: what it imports, and what it reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_containers, tiny_models
from tests.support.gguf_files import write_gguf
from thothy_ai.engine import model_types
from thothy_ai.engine.models import FAMILIES
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.multimodal import CONTAINERS
from thothy_ai.engine.weights.convert import described
from thothy_ai.engine.weights.inventory import expected_tensors

PUBLISHED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "data" / "published_configs.json").read_text(encoding="utf-8")
)
READ = """
import sys
from pathlib import Path
from thothy_ai.engine.process.imports import import_transformers_for
folders = [Path(folder) for folder in sys.argv[1:]]
import_transformers_for(folders[0])
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.weights.inventory import expected_tensors
for folder in folders:
    config = ModelConfig.from_folder(folder)
    print([config, expected_tensors(folder, config)])
print(*(name for name in ("torch", "torch._dynamo", "torch.distributed.tensor") if name in sys.modules))
"""
DESCRIBE = """
import sys
from pathlib import Path
from thothy_ai.engine.process.imports import import_transformers_for
file, folder = map(Path, sys.argv[1:])
import_transformers_for(file)
from thothy_ai.engine.weights.convert import described
described(file, folder)
"""


def run(code: str, *arguments: Path) -> list[str]:
    """The lines that it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True
    )
    return ran.stdout.splitlines()


def published(tmp_path: Path) -> list[Path]:
    """Folders with a configuration each."""
    folders = [tmp_path / str(number) for number in range(len(PUBLISHED))]
    for folder, model in zip(folders, PUBLISHED.values(), strict=True):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(model["config"]))
    return folders


def test_the_architectures_that_are_known_without_torch_are_those_that_there_are() -> None:
    assert set(FAMILIES) == model_types.FAMILIES
    assert set(CONTAINERS) == model_types.CONTAINERS


def test_configurations_read_the_same_and_import_nothing_that_they_do_not_need(tmp_path: Path) -> None:
    folders = [tiny_models.tiny_model(family, tmp_path / "families") for family in tiny_models.FAMILIES]
    folders += [tiny_containers.tiny_container(name, tmp_path / name) for name in tiny_containers.CONTAINERS]
    folders += published(tmp_path)
    *lines, imported = run(READ, *folders)
    assert imported == "torch"
    here = [(folder, ModelConfig.from_folder(folder)) for folder in folders]
    assert lines == [str([config, expected_tensors(folder, config)]) for folder, config in here]


def test_a_gguf_file_is_described_the_same(tmp_path: Path) -> None:
    model = tiny_models.tiny_model("llama", tmp_path)
    file = write_gguf(model, tmp_path / "tiny.gguf", architecture="llama")
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    described(file, here)
    run(DESCRIBE, file, there)
    written = [{path.name: path.read_text() for path in folder.iterdir()} for folder in (here, there)]
    assert written[0] == written[1]
    assert "config.json" in written[0]


@pytest.mark.parametrize(
    ("config", "ours"),
    [
        ('{"model_type": "llama"}', True),
        ('{"model_type": "gemma3"}', True),
        ('{"model_type": "gpt2"}', False),
        ('{"model_type": ["llama"]}', False),
        ("[]", False),
        ("{", False),
        ("[" * 100_000, False),
        (None, False),
    ],
)
def test_only_architectures_of_ours_do_without(config: str | None, ours: bool, tmp_path: Path) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert model_types.is_ours(tmp_path) is ours
