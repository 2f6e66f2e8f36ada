"""Makes commands whose parameters are not in their signatures but declared by a class of options or at run time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_parameters(run: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """`run` with these parameters as its signature for Typer; it gets all of them as keyword arguments."""
    signature = inspect.Signature(list(parameters))
    run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return run


def with_fields(run: Callable[..., None]) -> Callable[..., None]:
    """A command like `run`, whose parameter of a dataclass becomes an option for each of the dataclass's fields."""
    own = inspect.signature(run, eval_str=True).parameters.values()
    spread = next(parameter for parameter in own if is_dataclass(parameter.annotation))
    options, names = spread.annotation, [field.name for field in fields(spread.annotation)]

    def command(**given: Any) -> None:
        values = {name: given.pop(name) for name in names}
        run(**{spread.name: options(**values)}, **given)

    command.__name__, command.__doc__ = run.__name__, run.__doc__
    hints = get_type_hints(options, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for parameter in own:
        if parameter is spread:
            parameters += (keyword(name, hints[name]) for name in names)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    return with_parameters(command, parameters)
