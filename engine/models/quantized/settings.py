"""The settings of a `quantization_config`, read with errors that name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class MethodSettings:
    """The settings of one method; errors begin with its name."""

    method: str
    values: Mapping[str, Any]

    def get(self, name: str) -> object:
        """None if it is absent."""
        return self.values.get(name)

    def integer(self, name: str, default: int | None = None) -> int:
        """ModelLoadError for anything but a whole number."""
        value = self.values.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ModelLoadError(f"{self.method}: {name} is {value!r}, not a whole number")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """ModelLoadError for anything but true and false."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise ModelLoadError(f"{self.method}: {name} is {value!r}, neither true nor false")
        return default if value is None else value

    def pair(self, name: str) -> tuple[int, int]:
        """ModelLoadError for anything but two positive whole numbers."""
        match self.values.get(name):
            case [int(first), int(second)] if first > 0 and second > 0:
                return first, second
        raise ModelLoadError(f"{self.method}: {name} is {self.values.get(name)!r}, not two positive whole numbers")

    def require(self, name: str, *implemented: object) -> None:
        """UnsupportedModelError unless the value is one of these; None is absent."""
        value = self.values.get(name)
        if value not in implemented:
            raise UnsupportedModelError(f"{self.method}: {name} {value!r} is not implemented")
