"""The supported part of PEFT's adapter_config.json (https://huggingface.co/docs/peft). Imports no torch."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from thothy_ai.engine.api.adapters import MAX_RANK
from thothy_ai.engine.api.errors import AdapterLoadError, UnsupportedAdapterError, one_line

CONFIGURATION = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
_KEEPING = (None, True, False, "gaussian", "eva", "orthogonal")  # initializations that don't change the base
# Fields of features that are not implemented, with the values that switch the feature off.
_UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "use_dora": (False,),
    "use_qalora": (False,),
    "use_bdlora": (),
    "bias": ("none",),
    "lora_bias": (False,),
    "modules_to_save": ([],),
    "trainable_token_indices": ([], {}),
    "layer_replication": ([],),
    "target_parameters": ([],),
    "megatron_config": (),
    "fan_in_fan_out": (False,),
    "init_lora_weights": _KEEPING,
    "arrow_config": (),
    "kasa_config": (),
    "monteclora_config": (),
    "velora_config": ({},),
}
# Patterns of module names may have letters, digits, dots, `.*`, `\d+`, `|`, `^`, `$`, and groups without repetition.
_PATTERN = re.compile(r"(?:[\w-]|\\\.|\\d\+|\.\*|\.|\||\^|\$|\(\?:|\(|\))*", re.ASCII)
_REPETITIONS = re.compile(r"\.\*|\\d\+|\(")
_MAX_REPETITIONS, _MAX_PATTERN = 3, 500  # per pattern, since matching holds the interpreter's lock

Patterns = tuple[tuple[re.Pattern[str], float], ...]


@dataclass(frozen=True, slots=True)
class AdapterConfiguration:
    """The file's contents: the usual `rank` and `alpha`, and those of modules whose names match a pattern."""

    rank: int
    alpha: float
    rank_pattern: Patterns
    alpha_pattern: Patterns
    rank_stabilized: bool
    base: str
    invocation_tokens: tuple[int, ...]

    @property
    def max_rank(self) -> int:
        return max((self.rank, *(int(rank) for _, rank in self.rank_pattern)))

    def rank_of(self, module: str) -> int:
        """The rank that a module's weights must have; `module` is its name in PEFT."""
        return int(_matching(self.rank_pattern, module, self.rank))

    def scale_of(self, module: str) -> float:
        """The factor of a module's low-rank product (rsLoRA: Kalajdzievski, 2023)."""
        rank = self.rank_of(module)
        return _matching(self.alpha_pattern, module, self.alpha) / (math.sqrt(rank) if self.rank_stabilized else rank)


@dataclass(frozen=True)
class AdapterFiles:
    """The contents of a folder's two files. Each is read once, so that the digest is that of the weights in use even
    if the folder is overwritten meanwhile.
    """

    folder: Path
    configuration: bytes
    weights: bytes

    @classmethod
    def read(cls, folder: Path) -> AdapterFiles:
        """Read both files; AdapterLoadError if one is missing or unreadable."""
        return cls(folder, _content(folder, CONFIGURATION), _content(folder, WEIGHTS))

    @cached_property
    def digest(self) -> str:
        """sha256 of the configuration and the weights, in hexadecimal digits."""
        digest = sha256()
        for content in (self.configuration, self.weights):
            digest.update(len(content).to_bytes(8))
            digest.update(content)
        return digest.hexdigest()

    @property
    def parsed(self) -> AdapterConfiguration:
        """Parse the configuration; AdapterLoadError if it is invalid."""
        return _parsed(self.folder / CONFIGURATION, self.configuration)


def read_adapter_configuration(folder: Path) -> AdapterConfiguration:
    """The configuration of a PEFT folder. AdapterLoadError if it cannot be read; UnsupportedAdapterError names a
    feature that is not implemented.
    """
    return _parsed(folder / CONFIGURATION, _content(folder, CONFIGURATION))


def inside(folder: Path, name: str) -> Path:
    """The path of a file in the folder. AdapterLoadError if it is missing, or a link that leads out of the folder."""
    path = folder / name
    try:
        if not path.resolve(strict=True).is_relative_to(folder.resolve(strict=True)):
            raise AdapterLoadError(f"{path} leads out of its folder, to {path.resolve()}")
    except OSError as error:
        raise AdapterLoadError(f"{path}: {error.strerror or error}") from error
    except RuntimeError as error:  # circular links
        raise AdapterLoadError(f"{path}: {one_line(error)}") from error
    return path


def _content(folder: Path, name: str) -> bytes:
    path = inside(folder, name)
    try:
        return path.read_bytes()
    except OSError as error:
        raise AdapterLoadError(f"{path}: {error.strerror or error}") from error


def _parsed(path: Path, content: bytes) -> AdapterConfiguration:
    try:
        fields = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise AdapterLoadError(f"{path}: {one_line(error)}") from error
    if not isinstance(fields, dict):
        raise AdapterLoadError(f"{path}: expected an object")
    if (kind := fields.get("peft_type", "LORA")) != "LORA":
        raise UnsupportedAdapterError(f"{path}: peft_type {kind!r:.80} is not implemented, only LORA")
    for name, without in _UNSUPPORTED.items():
        value = fields.get(name)
        if value is not None and value not in without:
            raise UnsupportedAdapterError(f"{path}: {name} ({value!r:.80}) is not implemented")
    try:
        return _configuration(fields)
    except ValueError as error:
        raise AdapterLoadError(f"{path}: {error}") from error


def _configuration(fields: Mapping[str, Any]) -> AdapterConfiguration:
    """Parse the fields; ValueError names a wrong one."""
    tokens = fields.get("alora_invocation_tokens")
    if tokens is not None and not (isinstance(tokens, list) and tokens and all(type(each) is int for each in tokens)):
        raise ValueError(f"alora_invocation_tokens is {tokens!r:.80}, expected token ids")
    rank = _rank("r", fields.get("r", 8))
    return AdapterConfiguration(
        rank=rank,
        alpha=_number("lora_alpha", fields.get("lora_alpha", 8)),
        rank_pattern=_patterns(fields, "rank_pattern", _rank),
        alpha_pattern=_patterns(fields, "alpha_pattern", _number),
        rank_stabilized=bool(fields.get("use_rslora")),
        base=str(fields.get("base_model_name_or_path") or ""),
        invocation_tokens=tuple(tokens or ()),
    )


def _patterns(fields: Mapping[str, Any], name: str, read: Callable[[str, object], float]) -> Patterns:
    """The patterns of a field, compiled to match the end of a module's name, as in PEFT."""
    patterns = fields.get(name) or {}
    if not isinstance(patterns, dict):
        raise ValueError(f"{name} is {patterns!r:.80}, expected an object")  # noqa: TRY004  as for other fields
    compiled = []
    for key, value in patterns.items():
        _check_pattern(name, key)
        try:
            compiled.append((re.compile(rf"(.*\.)?({key})$"), read(name, value)))
        except re.error as error:
            raise ValueError(f"{name}: {key!r:.80}: {error}") from error
    return tuple(compiled)


def _check_pattern(name: str, key: str) -> None:
    """ValueError for a pattern more complex than names need: some would take forever to match."""
    if not _PATTERN.fullmatch(key):
        raise ValueError(
            f"{name}: {key!r:.80} has more than names, dots, '.*', '\\d+', '|', '^', '$' and unrepeated groups"
        )
    if len(key) > _MAX_PATTERN or len(_REPETITIONS.findall(key)) > _MAX_REPETITIONS:
        raise ValueError(
            f"{name}: {key!r:.80} is longer than {_MAX_PATTERN} characters, or has more than {_MAX_REPETITIONS} of "
            "'.*', '\\d+' and groups"
        )


def _rank(name: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= MAX_RANK:
        raise ValueError(f"{name} is {value!r:.80}: ranks from 1 to {MAX_RANK} are possible")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r:.80}, expected a number")
    return float(value)


def _matching(patterns: Patterns, module: str, default: float) -> float:
    """The value of the first pattern that matches a module's name."""
    return next((value for pattern, value in patterns if pattern.match(module)), default)
