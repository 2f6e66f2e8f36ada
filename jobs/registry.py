"""Finds kinds: those in `thothy_ai/jobs/kinds/`, and those in modules that the operator names (`THOTHY_KINDS`).

A kind is a module with a `KIND`. Built-in modules are imported when a kind is first asked for.
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
    """A module that should hold a kind and does not, or holds one whose name is taken."""


class UnknownKindError(KindError):
    """No kind has this name, or takes this request."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(f"unknown kind {kind!r}; there are {', '.join(names())}")


def names() -> tuple[str, ...]:
    """Names of all kinds, sorted."""
    return tuple(sorted(_all()))


def find(name: str) -> AnyKind:
    """Return the kind of this name; `UnknownKindError` when there is none."""
    try:
        return _all()[name]
    except KeyError:
        raise UnknownKindError(name) from None


def kind_of(request: Request) -> AnyKind:
    """Return the kind that takes this request; `UnknownKindError` when none does."""
    for kind in _all().values():
        if type(request) is kind.request:
            return kind
    raise UnknownKindError(type(request).__name__)


def load_extra(modules: Iterable[str]) -> None:
    """Add the kinds of these modules, all or none; loading one twice changes nothing. Raises `KindError`."""
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
        raise KindError(f"{module}: has no KIND = JobKind(...)")
    return kind
