"""How many streams there may be."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from thothy_ai.http.errors import ApiError
from thothy_ai.http.following import Places


def test_places_are_bounded_together_and_for_each() -> None:
    places = Places(3, 2, "streams")
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(places.taken("Ada"))
        with pytest.raises(ApiError, match="you have 2 streams"), places.taken("Ada"):
            pass
        held.enter_context(places.taken("Bo"))
        with pytest.raises(ApiError, match="3 streams are open"), places.taken("Cy"):
            pass
    with places.taken("Cy"), places.taken("Cy"):
        pass
