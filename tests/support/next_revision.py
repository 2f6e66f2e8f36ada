"""A revision after the newest, as a release may bring it, in a copy of the packaged migrations.

It does what migrations do beside running work: it builds an index, adds a column, indexes a partitioned table and
replaces the index that the dispatcher reads. `python -m tests.support.next_revision FOLDER` migrates to it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from thothy_ai.db import revisions
from thothy_ai.db.migration import migrate
from thothy_ai.db.revisions import code_revision
from thothy_ai.settings import Settings

SOURCE = '''"""The next revision."""

from alembic import op

from thothy_ai.db.fragments import PLANNED_ORDER
from thothy_ai.db.online import beside_running_work, build_index, build_partitioned_index, drop_index, replace_index

revision = "0002"
down_revision = "{head}"
branch_labels = None
depends_on = None

PLANNED = ", ".join(PLANNED_ORDER)
QUEUED = "WHERE state = 'queued' AND NOT delayed AND model IS NULL"


def upgrade():
    with beside_running_work():
        build_index("ix_job_next", "(attempt, id) WHERE state = 'dead'")
    op.execute("ALTER TABLE job ADD COLUMN IF NOT EXISTS next_value integer NOT NULL DEFAULT 0")
    with beside_running_work():
        build_partitioned_index("ix_attempt_next", "attempt", "(worker) WHERE outcome = 'lost'")
        replace_index("ix_job_queued", f"({{PLANNED}}) INCLUDE (next_value) {{QUEUED}}")


def downgrade():
    with beside_running_work():
        replace_index("ix_job_queued", f"({{PLANNED}}) {{QUEUED}}")
        drop_index("ix_job_next")
    op.execute("DROP INDEX ix_attempt_next")
    op.execute("ALTER TABLE job DROP COLUMN next_value")
'''


@contextmanager
def next_revision(folder: Path) -> Iterator[str]:
    """This process's code needs that revision until the end of the block; `folder` is new, and takes the migrations.

    Gives the revision before it.
    """
    head = code_revision()
    copied = folder / "migrations"
    shutil.copytree(revisions.MIGRATIONS, copied, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "versions" / "r0002_next.py").write_text(SOURCE.format(head=head))
    with patch.object(revisions, "MIGRATIONS", copied):
        yield head


if __name__ == "__main__":
    with next_revision(Path(sys.argv[1])):
        sys.stdout.write(migrate(Settings.load()))
