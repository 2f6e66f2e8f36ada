"""What `--help` shows for the value of an option: `N`, `TEXT` or the choices, in place of Typer's `<int range>`."""

from __future__ import annotations

import re
from typing import Any

from typer import Context

_TYPES = {"int": "N", "float": "NUMBER", "str": "TEXT", "path": "PATH"}
_LABEL = re.compile(r"<(?:list\[)?(?P<type>[^\]>]+?)(?: range)?\]?>")


def name_values(command: Any) -> None:
    """Name the values of a command's options that have no name of their own, and show no types of arguments."""
    context = Context(command, info_name=command.name, resilient_parsing=True)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _no_type
        elif parameter.metavar is None and not parameter.is_flag:
            parameter.metavar = value_name(parameter.display_type(context))


def value_name(label: str) -> str:
    """The name for Typer's label of a type: `N` for `<int range>`, `a|b` for `<list[a|b]>`."""
    found = _LABEL.fullmatch(label)
    kind = found["type"] if found else label
    return _TYPES.get(kind, kind)


def _no_type(ctx: Context) -> None:
    """Nothing: the name of an argument says what it is."""
