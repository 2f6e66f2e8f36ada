"""Names of exported files."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from thothy_ai.cli.export import file_name


def artifact(**values: Any) -> dict[str, Any]:
    plain = {"kind": "hook", "locale": "en", "job_id": uuid4(), "attempt": 2, "verdict": "accepted"}
    return {**plain, "body": {"title": "Crocks"}, "text": "raw", **values}


@pytest.mark.parametrize("locale", ["..", "/", "a/../../b", "x" * 400, "", "de\x00", "日本"])
@pytest.mark.parametrize("title", ["", "..", "/etc/passwd", "y" * 400, "日本の漬物", "a\nb", "Ça — là"])
def test_they_stay_in_their_folder(locale: str, title: str) -> None:
    name = file_name(artifact(kind="../k", locale=locale, body={"title": title}))
    assert "/" not in name
    assert not name.startswith(".")
    assert name.isascii()
    assert name.isprintable()
    assert len(name) < 255


def test_they_say_what_it_is() -> None:
    one = artifact(body={"title": "Ça — là: why makers of clay crocks in Lyon sell out every spring"})
    assert file_name(one, "md") == f"hook.en.ca-la-why-makers-of-clay-crocks-in-lyon-sell-out.{one['job_id']}.md"


def test_attempts_of_one_job_do_not_overwrite_each_other() -> None:
    one = artifact(verdict="rejected")
    assert file_name(one) != file_name(one | {"attempt": 3})
