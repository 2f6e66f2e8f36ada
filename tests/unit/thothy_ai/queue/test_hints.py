"""Messages: what is a hint, and what any client could send instead."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.queue.hints import Hint, MalformedHintError, parse, parse_task_id, task_id

ID = "0198c1f2-7a3b-7c4d-8e5f-6a7b8c9d0e1f"  # part of test ids: each process that collects them must find the same
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def test_two_fields_are_a_hint() -> None:
    assert parse([ID, 3], {}) == Hint(UUID(ID), 3)


@pytest.mark.parametrize(
    "args",
    [None, [], [ID], [ID, 1, 1], "ab", {"a": 1, "b": 2}, ["x" * 36, 1], [ID[:-1], 1], [7, 1], [None, None],
     [ID, 0], [ID, -1], [ID, 2**31], [ID, True], [ID, 1.0], [ID, "1"], [[ID], 1]],
)  # fmt: skip
def test_anything_else_is_refused(args: Any) -> None:
    with pytest.raises(MalformedHintError):
        parse(args, {})


def test_keyword_arguments_are_refused() -> None:
    with pytest.raises(MalformedHintError):
        parse([ID, 1], {"x": 1})


@given(JSON, JSON)
def test_nothing_that_json_can_say_breaks_it(args: Any, kwargs: Any) -> None:
    with pytest.raises(MalformedHintError):
        parse(args, kwargs)


@given(st.uuids(), st.integers(1, 2**31 - 1))
def test_a_task_id_names_its_hint(job_id: UUID, dispatch_no: int) -> None:
    hint = Hint(job_id, dispatch_no)
    assert parse_task_id(task_id(hint)) == hint


@pytest.mark.parametrize("text", [None, 7, "", "x", f"{ID}", f"{ID}.", f"{ID}.x", f"{ID}.0", "no.1"])
def test_other_ids_name_none(text: Any) -> None:
    assert parse_task_id(text) is None
