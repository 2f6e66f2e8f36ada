"""Writes every page: `python -m docs.generate`, or `make docs`. With `--check` it writes nothing, and exits with 1 if
a page is not what the code says."""

from __future__ import annotations

import sys

from docs.generate.pages import REFERENCE, pages


def main(*, check: bool) -> int:
    """Write the pages that differ from what is on disk, or only name them; returns the exit code."""
    wanted = pages()
    stale = [name for name, text in wanted.items() if text != _written(name)]
    for name in stale:
        if not check:
            (REFERENCE / name).write_text(wanted[name], encoding="utf-8")
        print(f"{'stale' if check else 'wrote'}: docs/reference/{name}")
    return 1 if check and stale else 0


def _written(name: str) -> str:
    file = REFERENCE / name
    return file.read_text(encoding="utf-8") if file.exists() else ""


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
