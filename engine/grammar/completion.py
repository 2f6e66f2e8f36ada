"""The length of a text's shortest completion: known for all texts of one schema from a walk through its shortest one.

Where a schema is plain, what follows a field is the same in all texts, and further items of an array are like its last
one in the walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from thothy_ai.engine.grammar.bounds import Bounds, bounds_of
from thothy_ai.engine.grammar.fields import TextFields
from thothy_ai.engine.grammar.position import JsonPosition, Place
from thothy_ai.engine.grammar.tokens import JsonTokens
from thothy_ai.engine.grammar.walk import END, Walk, Walker

if TYPE_CHECKING:
    from llguidance import LLMatcher

_SLACK = 6  # tokens: a character's last three bytes, and other divisions of the same text


class Rest(NamedTuple):
    """A shortest completion: its tokens, how many of them are free to choose, and how many come before the one that
    ends the open string (a large number if no string is open, or if that is not known).
    """

    tokens: int
    choices: int
    string: int = 2**31


class Completion:
    """`shortest`: tokens of the schema's shortest text, as far as a walk finds it. One token adds at most `inside` to
    the shortest completion, and `opening` more where it opens something that need not be there.
    """

    def __init__(self, walk: Walk, bounds: Bounds, tokens: JsonTokens) -> None:
        self.shortest, self.choices = len(walk.tokens), max(1, sum(walk.chosen))
        per_byte = min(1.0, 2 * self.shortest / max(1, bounds.least))  # rounded up
        opening = round(bounds.opening * per_byte)
        self.inside = bounds.inside + _SLACK + (0 if bounds.plain else opening)
        self.opening = opening
        self._from: dict[Place, Rest] = {}  # from the beginning of a field to the end
        self._after: dict[Place, Rest] = {}  # from the token that ends a string
        self._last: dict[Place, int] = {}  # the index of an array's last item
        if not bounds.plain:
            return
        position = JsonPosition()
        rest = Rest(self.shortest, self.choices)
        for token, chosen in zip(walk.tokens, walk.chosen, strict=True):
            changes = token != END and (not position.in_value_string or tokens.boundaries[token])
            data = tokens.table[token] if changes else b""
            for at in range(len(data)):
                string = position.place if position.in_value_string else None
                position.feed(data[at : at + 1])
                if string is not None and not position.in_string:
                    self._after.setdefault(string, rest)
                place = position.place
                self._from.setdefault(place, rest)
                if place and isinstance(place[-1], int):
                    self._last[place[:-1]] = place[-1]
            rest = Rest(rest.tokens - 1, rest.choices - chosen)

    def rest(self, place: Place) -> Rest | None:
        """From the beginning of a field to the end of the text; None if only a walk can find out."""
        return self._from.get(self._like(place))

    def after_string(self, place: Place) -> Rest | None:
        """From the token that ends the string in this field; None if only a walk can find out."""
        return self._after.get(self._like(place))

    def _like(self, place: Place) -> Place:
        """The same field in the walk; further items of an array are like the walk's last one."""
        like: Place = ()
        for entry in place:
            like = (*like, min(entry, self._last.get(like, entry)) if isinstance(entry, int) else entry)
        return like


def completion_of(schema: str, matcher: LLMatcher, fields: TextFields) -> Completion | None:
    """The completion of a schema (JSON text), whose matcher is used up; None if no walk reaches the end."""
    walk = Walker(matcher, fields, JsonPosition()).to_the_end()
    return None if walk is None else Completion(walk, bounds_of(schema), fields.tokens)
