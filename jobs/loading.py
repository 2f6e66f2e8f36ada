"""Imports the modules of a user's kinds, by name or from a file, without changing the import path.

A file is imported under its own name where that name is free, so that `from quiz import QuizQuestion` in a producer
gets the same class. A file called `queue.py` must not become the standard library's `queue`: it gets another name.
"""

from __future__ import annotations

import sys
import traceback
from hashlib import sha256
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from threading import RLock
from types import ModuleType

MAX_CAUSE_CHARS = 300
_PACKAGE = str(Path(__file__).parent)
_LIBRARIES = {"importlib", "site-packages", "dist-packages"}
_lock = RLock()


class LoadError(Exception):
    """A module that cannot be imported; the message says why, on one line."""


def load(entry: str) -> ModuleType:
    """Import a module by its name, such as `acme.kinds`, or by the path of its file. Raises `LoadError`."""
    is_file = entry.endswith(".py") or "/" in entry
    with _lock:
        try:
            return _from_file(Path(entry)) if is_file else import_module(entry)
        except LoadError:
            raise
        except (Exception, SystemExit) as error:  # the module is third-party code
            missing = isinstance(error, ModuleNotFoundError) and f"{entry}.".startswith(f"{error.name}.")
            if missing and not is_file:
                file = Path(*entry.split(".")).with_suffix(".py")
                hint = f"; for the file {file}, set its path" if file.is_file() else ""
                hint = hint if "." in entry else f", and no file {file.name} in {Path.cwd()}"
                raise LoadError(f"there is no module {entry!r} installed{hint}") from None
            raise LoadError(f"{entry} cannot be imported: {_cause(error)}") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        is_folder = f"{path} is a folder; name a .py file in it"
        raise LoadError(is_folder if path.is_dir() else f"there is no file {path}")
    path = path.absolute()
    for loaded in list(sys.modules.values()):  # `__main__` when the file is the program that runs
        file = getattr(loaded, "__file__", None)
        if isinstance(file, str) and Path(file).name == path.name and Path(file).exists() and path.samefile(file):
            return loaded
    # Its own name, unless a module of that name is imported, or importable from elsewhere.
    free = path.stem.isidentifier() and path.stem not in sys.modules and _is_free(path)
    name = path.stem if free else f"thothy_kind_{sha256(str(path).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path} is not a Python file; its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    finder = _Beside(path.parent)
    sys.meta_path.append(finder)  # last, so that modules next to a kind's file shadow nothing
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    finally:
        sys.meta_path.remove(finder)
    return module


def _is_free(path: Path) -> bool:
    try:
        spec = find_spec(path.stem)
    except (ImportError, ValueError):
        return False
    return spec is None or (spec.origin is not None and Path(spec.origin).exists() and path.samefile(spec.origin))


class _Beside(MetaPathFinder):
    def __init__(self, folder: Path) -> None:
        self._path = [str(folder)]

    def find_spec(self, fullname: str, path: object = None, _target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, self._path) if path is None else None


def _cause(error: BaseException) -> str:
    """The error's type and message, and the last line of the user's code that led to it."""
    name, message = type(error).__name__, " ".join(str(error).split())[:MAX_CAUSE_CHARS]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{name}: {error.msg} ({error.filename}:{error.lineno})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", _PACKAGE)) and not _LIBRARIES & set(Path(frame.filename).parts)
    ]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return (f"{name}: {message}" if message else name) + where
