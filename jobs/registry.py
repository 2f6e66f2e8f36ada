"""The registry of kinds: those in `thothy_ai/jobs/kinds/`, those of installed packages, and those in the modules and
files named by `THOTHY_KINDS`.

A kind is a module with a `KIND`. A package names its modules as entry points of the group `thothy_ai.kinds`. Built-in
modules are imported at the first lookup, and so are those of packages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any

from thothy_ai.jobs import kinds, loading
from thothy_ai.jobs.api.kind import JobKind, Request

AnyKind = JobKind[Any, Any]
ENTRY_POINTS = "thothy_ai.kinds"

_extra: dict[str, AnyKind] = {}


class KindError(Exception):
    """A module cannot be imported, does not define a kind, or defines one whose name is taken."""


class UnknownKindError(KindError):
    """No kind has this name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(f"unknown kind {kind!r}; available: {', '.join(names())}")


class UnknownRequestError(KindError):
    """No kind has this request class."""

    def __init__(self, request: object) -> None:
        name = type(request).__name__
        super().__init__(f"no kind has the request class {name!r}; THOTHY_KINDS must name the module of its KIND")


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
    """Return the kind of this request, by its exact class. Raises `UnknownRequestError`.

    A class of the same name from the same file counts as the same: a producer may have imported that file otherwise.
    """
    asked, known = type(request), _all().values()
    found = [kind for kind in known if kind.request is asked]
    if file := _file_of(asked):
        code = (file, asked.__qualname__)
        found += [kind for kind in known if (_file_of(kind.request), kind.request.__qualname__) == code]
    if not found:
        raise UnknownRequestError(request)
    return found[0]


def _file_of(cls: type) -> str | None:
    return getattr(sys.modules.get(cls.__module__), "__file__", None)


def load_extra(modules: Iterable[str]) -> None:
    """Register the kinds of these modules, all or none; repeating it has no effect. Raises `KindError`.

    A module is given by its name or by the path of its file.
    """
    found: dict[str, AnyKind] = {}
    for module in modules:
        kind = _kind_in(module)
        _check_free(module, kind, _all() | found)
        found[kind.name] = kind
    _extra.update(found)


def _check_free(module: str, kind: AnyKind, others: Mapping[str, AnyKind]) -> None:
    for other in others.values():
        if other is kind:
            continue
        if other.name == kind.name:
            raise KindError(f"{module}: the name {kind.name!r} is taken by another kind")
        if other.request is kind.request:
            raise KindError(f"{module}: the request class {kind.request.__name__} is that of the kind {other.name!r}")


def _all() -> dict[str, AnyKind]:
    return _builtin() | _installed() | _extra


@cache
def _installed() -> dict[str, AnyKind]:
    """The kinds of installed packages. Raises `KindError`, naming the entry point and its package."""
    found: dict[str, AnyKind] = {}
    for point in entry_points(group=ENTRY_POINTS):
        module = f"entry point {point.name!r} of {point.dist.name if point.dist is not None else point.value}"
        try:
            loaded = point.load()
        except Exception as error:  # raised by a broken installed package
            raise KindError(f"{module}: {type(error).__name__}: {error}") from error
        kind = _of_module(module, loaded)
        _check_free(module, kind, _builtin() | found)
        found[kind.name] = kind
    return found


@cache
def _builtin() -> dict[str, AnyKind]:
    modules = (f"{kinds.__name__}.{module.name}" for module in iter_modules(kinds.__path__))
    return {kind.name: kind for kind in map(_kind_in, modules)}


def _kind_in(module: str) -> AnyKind:
    try:
        return _of_module(module, loading.load(module))
    except loading.LoadError as error:
        raise KindError(str(error)) from error


def _of_module(module: str, loaded: object) -> AnyKind:
    """The kind of a module, or an entry point that is a kind itself."""
    kind = loaded if isinstance(loaded, JobKind) else getattr(loaded, "KIND", None)
    if not isinstance(kind, JobKind):
        raise KindError(f"{module}: does not define KIND = JobKind(...)")
    return kind
