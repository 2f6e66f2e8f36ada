"""Configurations in processes of their own: who imports what, and that both read the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import tiny_containers, tiny_models
from thothy_ai.engine.checkpoint.configuration import read_configuration, transformers_configuration
from thothy_ai.engine.checkpoint.multimodal import text_part
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.inventory import expected_tensors

PUBLISHED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "data" / "published_configs.json").read_text(encoding="utf-8")
)
READ = """
import sys
from pathlib import Path
from thothy_ai.engine.process.imports import transformers_without_torch
from thothy_ai.engine.wire.core_messages import ConfigurationRead
with transformers_without_torch():
    from thothy_ai.engine.checkpoint.configuration import read_configuration
    for folder in sys.argv[1:]:
        print(ConfigurationRead.of(read_configuration(Path(folder))).json)
print(*(name for name in ("torch", "numpy") if name in sys.modules))
"""
USE = """
import sys
from pathlib import Path
from thothy_ai.engine.weights.assemble import configured, model_config
from thothy_ai.engine.wire.core_messages import ConfigurationRead
from thothy_ai.engine.weights.inventory import expected_tensors
for folder, read in zip(sys.argv[1:], sys.stdin):
    config = configured(ConfigurationRead(read).configuration(), Path(folder))
    print([config, expected_tensors(Path(folder), config)])
print(*(name for name in ("torch", "transformers", "torch._dynamo", "torch.distributed.tensor") if name in sys.modules))
"""


NOT_READ = {"dtype", "id2label", "label2id", "output_attentions", "transformers_version"}


def run(code: str, *arguments: Path, told: str = "") -> list[str]:
    """The lines that it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], input=told, check=True, stdout=subprocess.PIPE, text=True
    )
    return ran.stdout.splitlines()


def published(tmp_path: Path) -> list[Path]:
    """Folders with a configuration each."""
    folders = [tmp_path / str(number) for number in range(len(PUBLISHED))]
    for folder, model in zip(folders, PUBLISHED.values(), strict=True):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(model["config"]))
    return folders


def test_the_core_s_process_does_not_import_the_frontend() -> None:
    """It would take jinja2 and more."""
    modules = ("thothy_ai.engine.text.frontend", "thothy_ai.engine.text.prompts", "jinja2", "transformers")
    code = f"""
import sys
import thothy_ai.engine.process.core_process, thothy_ai.engine.process.resident
print(*(name for name in {modules} if name in sys.modules))
"""
    assert run(code) == [""]


def test_the_frontend_reads_configurations_without_torch_and_the_core_uses_them_without_transformers(
    tmp_path: Path,
) -> None:
    folders = [tiny_models.tiny_model(family, tmp_path / "families") for family in tiny_models.FAMILIES]
    ours = [name for name, own in tiny_containers.CONTAINERS.items() if own["text"] in tiny_models.FAMILIES]
    folders += [tiny_containers.tiny_container(name, tmp_path / name) for name in ours]
    folders += published(tmp_path)
    *read, imported = run(READ, *folders)
    assert imported == "numpy"
    *used, imported = run(USE, *folders, told="\n".join(read))
    assert imported == "torch"
    here = [(folder, model_config(folder)) for folder in folders]
    assert used == [str([config, expected_tensors(folder, config)]) for folder, config in here]


def test_no_value_of_a_configuration_is_lost(tmp_path: Path) -> None:
    folders = [tiny_models.tiny_model(family, tmp_path / "families") for family in tiny_models.FAMILIES]
    folders += published(tmp_path)
    quantized = folders[0] / "config.json"
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    quantized.write_text(json.dumps(json.loads(quantized.read_text()) | {"quantization_config": fp8}))
    for folder in folders:
        config = text_part(transformers_configuration(folder))
        wanted = json.loads(json.dumps(config.to_dict()))
        found = vars(read_configuration(folder).text)
        assert {name for name in wanted if name not in NOT_READ and found.get(name) != wanted[name]} == set(), folder
        assert found.get("quantization_config") == (fp8 if folder == folders[0] else None)
