"""The registry of kinds: those in `thothy_ai/jobs/kinds/`, and those in the modules named by `THOTHY_KINDS`.

A kind is a module with a `KIND`. Built-in modules are imported at the first lookup.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from thothy_ai.jobs import kinds
from thothy_ai.jobs.kind import JobKind, Request

AnyKind = JobKind[Any, Any]

_extra: dict[str, AnyKind] = {}


class KindError(Exception):
    """A module cannot be imported, does not define a kind, or defines one whose name is taken."""


class UnknownKindError(KindError):
    """No kind has this name, or none accepts this request class."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(f"unknown kind {kind!r}; available: {', '.join(names())}")


def names() -> tuple[str, ...]:
    """Return the names of all kinds, sorted."""
    return tuple(sorted(_all()))


def find(name: str) -> AnyKind:
    """Return the kind with this name. Raises `UnknownKindError`."""
    try:
        return _all()[name]
    except KeyError:
        raise UnknownKindError(name) from None


def kind_of(request: Request) -> AnyKind:
    """Return the kind of this request, by its exact class. Raises `UnknownKindError`."""
    for kind in _all().values():
        if type(request) is kind.request:
            return kind
    raise UnknownKindError(type(request).__name__)


def load_extra(modules: Iterable[str]) -> None:
    """Register the kinds of these modules, all or none; repeating it has no effect. Raises `KindError`."""
    found: dict[str, AnyKind] = {}
    for module in modules:
        kind = _kind_in(module)
        if (_all() | found).get(kind.name, kind) is not kind:
            raise KindError(f"{module}: the name {kind.name!r} is taken by another kind")
        found[kind.name] = kind
    _extra.update(found)


def _all() -> dict[str, AnyKind]:
    return _builtin() | _extra


@cache
def _builtin() -> dict[str, AnyKind]:
    modules = (f"{kinds.__name__}.{module.name}" for module in iter_modules(kinds.__path__))
    return {kind.name: kind for kind in map(_kind_in, modules)}


def _kind_in(module: str) -> AnyKind:
    try:
        kind = getattr(import_module(module), "KIND", None)
    except ImportError as error:
        raise KindError(f"{module}: cannot be imported: {error}") from error
    if not isinstance(kind, JobKind):
        raise KindError(f"{module}: does not define KIND = JobKind(...)")
    return kind
