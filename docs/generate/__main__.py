"""Writes every page: `python -m docs.generate`, or `make docs`. With `--check` it writes nothing, and exits with 1 if
a page is not what the code says."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.generate.pages import ROOT, pages


def main(*, check: bool) -> int:
    """Write the pages that differ from what is on disk, or only name them; returns the exit code."""
    wanted = pages()
    stale = [path for path, text in wanted.items() if text != _written(path)]
    for path in stale:
        if not check:
            path.write_text(wanted[path], encoding="utf-8")
        print(f"{'stale' if check else 'wrote'}: {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


def _written(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
