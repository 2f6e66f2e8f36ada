"""Checks the fields of config.json on rotary embedding, which can contradict each other.

transformers uses the first field that it finds. Older files have `rope_theta` and `rope_scaling`, newer ones
`rope_parameters`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thothy_ai.engine.api.errors import ModelLoadError

_ALIKE = ({"default", "mrope"}, {"su", "longrope"})  # older and newer names of one type


def require_one_rope(part: Mapping[str, Any]) -> None:
    """ModelLoadError, naming the fields, if two of them differ, or if a scaling has no type."""
    old, new = part.get("rope_scaling"), part.get("rope_parameters")
    for name, given in (("rope_scaling", old), ("rope_parameters", new)):
        whole = given if isinstance(given, Mapping) else {}
        for scaling in (each for each in (whole, *whole.values()) if isinstance(each, Mapping)):  # can be by layer type
            kinds = {str(scaling[key]) for key in ("type", "rope_type") if scaling.get(key) is not None}
            if len(kinds) > 1 and kinds not in _ALIKE:
                raise ModelLoadError(
                    f"{name} has two types: type is {scaling['type']!r}, rope_type {scaling['rope_type']!r}"
                )
            if (factor := scaling.get("factor")) not in (None, 1) and not kinds - {"default"}:
                raise ModelLoadError(f"{name} has a factor of {factor!r}, and no rope_type that uses it")
    if not isinstance(new, Mapping) or any(isinstance(each, Mapping) for each in new.values()):
        return
    before = {**(old if isinstance(old, Mapping) else {}), "rope_theta": part.get("rope_theta")}
    for key, value in before.items():
        said = new.get("rope_type" if key == "type" else key)
        if None not in (value, said) and value != said and {str(value), str(said)} not in _ALIKE:
            where = "rope_theta" if key == "rope_theta" else f"rope_scaling's {key}"
            raise ModelLoadError(f"{where} is {value!r}, and rope_parameters says {said!r}")
