"""docs/backup.md, typed word for word against `thothy up`: both kinds of backup, and both ways back."""

from __future__ import annotations

import re
import stat

import pytest

from tests.support.tutorial import ROOT, steps, tutorial

PAGE = ROOT / "docs/backup.md"


@pytest.mark.timeout(1800)
def test_the_page_word_for_word() -> None:
    with tutorial(PAGE) as page:
        for played in page.play():
            assert played.as_written, "\n".join([*map(str, played.step.commands), "the screen:", *played.rows])
            assert {ran.code for ran in played.ran} <= {0}, (played.step.commands, played.rows)
        for name in ("thothy.dump", "roles.sql"):
            assert stat.S_IMODE((page.folder / name).stat().st_mode) == 0o600


def test_every_program_of_the_page_is_typed() -> None:
    """What the page says of any Postgres, it shows for that of `thothy up`."""
    named = set(re.findall(r"^(?:pg_\w+|createdb|vacuumdb)\b", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    typed = {line.split()[0] for step in steps(PAGE) for command in step.commands for line in command if line.strip()}
    assert {"pg_dump", "pg_dumpall", "pg_basebackup"} <= named <= typed
