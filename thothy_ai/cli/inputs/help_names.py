"""Names for the values of options in `--help`: `N`, `TEXT` or the choices instead of Typer's `<int range>`."""

from __future__ import annotations

import re
from typing import Any

from typer import Context

_TYPES = {"int": "N", "float": "NUMBER", "str": "TEXT", "path": "PATH"}
_LABEL = re.compile(r"<(?:list\[)?(?P<type>[^\]>]+?)(?: range)?\]?>")


def name_values(command: Any) -> None:
    """Name the values of a command's options unless they have a metavar; hide the types of arguments."""
    context = Context(command, info_name=command.name, resilient_parsing=True)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None  # noqa: ARG005 - Typer names it
        elif parameter.metavar is None and not parameter.is_flag:
            parameter.metavar = value_name(parameter.display_type(context))


def value_name(label: str) -> str:
    """Rename Typer's label of a type: `<int range>` to `N`, `<list[a|b]>` to `a|b`."""
    found = _LABEL.fullmatch(label)
    kind = found["type"] if found else label
    return _TYPES.get(kind, kind)
