"""All pages, by file name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.generate.commands import commands_page
from docs.generate.errors import errors_page
from docs.generate.exit_codes import empty_folder, exit_codes_page
from docs.generate.jsonl import jsonl_page
from docs.generate.metrics import metrics_page
from docs.generate.prompts import prompts_page
from docs.generate.settings import settings_page

REFERENCE = Path(__file__).parents[1] / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "cli.md": commands_page,
    "jsonl.md": jsonl_page,
    "metrics.md": metrics_page,
    "errors.md": errors_page,
    "prompts.md": prompts_page,
    "exit-codes.md": exit_codes_page,
}


def pages() -> dict[str, str]:
    """The text of every page, whatever is set in the environment."""
    with empty_folder():
        return {name: write() for name, write in PAGES.items()}
