"""JSON that is indented while it arrives is the same JSON, however it is cut into pieces."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.cli.views.live_json import LiveJson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
CALLS = st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3) | st.lists(VALUES, max_size=3), max_size=3)


@given(value=VALUES, size=st.integers(1, 9), ascii_only=st.booleans())
def test_it_is_what_the_library_indents(value: Any, size: int, *, ascii_only: bool) -> None:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only)
    live = LiveJson()
    shown = "".join(live.feed(text[at : at + size]) for at in range(0, len(text), size))
    assert shown == json.dumps(value, indent=2, ensure_ascii=ascii_only)


@given(calls=CALLS, size=st.integers(1, 9))
def test_the_outputs_of_several_calls_begin_on_lines_of_their_own(calls: list[Any], size: int) -> None:
    text = "".join(json.dumps(each) for each in calls)
    live = LiveJson()
    shown = "".join(live.feed(text[at : at + size]) for at in range(0, len(text), size))
    assert shown == "\n".join(json.dumps(each, indent=2) for each in calls)
