"""All pages, by file name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.generate.commands import commands_page
from docs.generate.compose import env_example, settings_yaml
from docs.generate.errors import errors_page
from docs.generate.exit_codes import empty_folder, exit_codes_page
from docs.generate.jsonl import jsonl_page
from docs.generate.metrics import metrics_page
from docs.generate.models import models_page
from docs.generate.prompts import prompts_page
from docs.generate.settings import settings_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
# Beside the pages that are written by hand.
GUIDES: dict[str, Callable[[], str]] = {"models.md": models_page, "METRICS.md": metrics_page}
DEPLOYMENT: dict[str, Callable[[], str]] = {"deploy/settings.yaml": settings_yaml, ".env.example": env_example}
PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "cli.md": commands_page,
    "jsonl.md": jsonl_page,
    "errors.md": errors_page,
    "prompts.md": prompts_page,
    "exit-codes.md": exit_codes_page,
}


def pages() -> dict[Path, str]:
    """The text of every page, whatever is set in the environment."""
    written = {REFERENCE / name: write for name, write in PAGES.items()}
    written |= {DOCS / name: write for name, write in GUIDES.items()}
    written |= {ROOT / name: write for name, write in DEPLOYMENT.items()}
    with empty_folder():
        return {path: write() for path, write in written.items()}
