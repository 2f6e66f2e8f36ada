"""Prints what an image installs, one requirement per line, out of pyproject.toml and constraints.txt beside it.

    python requirements.py service         the dependencies, and those of the extra `http`
    python requirements.py engine          the dependencies, and those of the extra `engine`
    python requirements.py pinned torch    one package, at the version of the constraints

The image's layers are keyed by this output: an edit of pyproject.toml that changes no dependency downloads nothing.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def dependencies(extra: str) -> list[str]:
    """The project's dependencies, with those of an extra."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"][extra]]


def pinned(package: str) -> list[str]:
    """The line of a package in the constraints. SystemExit if there is none."""
    lines = Path("constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if re.match(rf"{re.escape(package)}==", line)]
    return found or sys.exit(f"constraints.txt does not pin {package}")


def main(arguments: list[str]) -> None:
    """Print one list."""
    match arguments:
        case ["service"]:
            lines = dependencies("http")
        case ["engine"]:
            lines = dependencies("engine")
        case ["pinned", package]:
            lines = pinned(package)
        case _:
            sys.exit(__doc__)
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
