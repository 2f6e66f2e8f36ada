"""Slices of the vocabulary: sets of tokens that llguidance adds to a mask as a whole.

A slice has the tokens that match a regular expression, such as "up to ten characters of prose". It applies wherever the
grammar allows everything that the expression matches. Only the other tokens must then be visited to compute a mask,
which takes 30 to 50 us instead of 900 with a vocabulary of 131,072. Slices never change a mask. The slices of prose
serve most schemas; a schema with other character classes gets slices for these, and for what its patterns repeat. There
are few slices, since each takes 20 to 50 ms to build while it holds the interpreter's lock, and since most masks are
remembered (`memory.py`).

llguidance compares only repetitions: it recognizes that `(a| b){1,20}` can come where `(a| b|, c){30,110}` continues,
if nothing else can. Patterns profit if their repeated alternatives end alike and begin differently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

# The characters of prose in any script, which most text fields allow: no control characters, quotation marks, markup,
# symbols or emoji. Some fields allow the ends of sentences in few places, so one slice has none.
_NOT_PROSE = (
    r'\x00-\x1f\x7f-\x9f"\\#*<=>@\[\]^_`{|}~\u2000-\u200f\u2028-\u202f\u2060-\u20ff\u2190-\u2bff'
    r"\ue000-\uf8ff\ufe00-\ufe0f\ufff0-\uffff\U00010000-\U0010ffff"
)
_PHRASE = f"[^{_NOT_PROSE}.!?…。！？]"
_PROSE = f"[^{_NOT_PROSE}]"
_JSON_TEXT = r'[^"\\\x00-\x1f\x7f]'  # unescaped characters of a JSON string
_LENGTHS = (10, 40)  # characters; near the end of a bounded text, only the shorter slice applies, or none
_ANY_TEXT = (30,)

_ALTERNATIVES = (8, 20)

_MAX_CLASSES = 3  # with slices, per schema
_MIN_CLASS = 10  # characters
_MAX_EXAMINED = 8
_MAX_PATTERN = 20_000  # characters that are searched for repetitions
_MAX_ALTERNATIVES = 3  # per repetition; llguidance does not compare more
_MANY = 20  # repetitions
CLASS = re.compile(r"\[\^?(?:\\.|[^\]\\]){1,500}\]")  # bounded: an unclosed one is searched from each bracket
_PIECE = re.compile(
    rf"(?:{CLASS.pattern}|\\.|[^\\\[()|])++|\((?:\?:)?|\)(?:\{{\d{{1,6}},(?P<most>\d{{1,6}})\}}|(?P<any>[*+]))?|.",
    re.DOTALL,
)
_INNER = "\0"  # in place of a group in another
_SIMPLE = re.compile(rf"(?: |{CLASS.pattern}|\{{\d+\}})+")  # an alternative of characters alone
NESTED = re.compile(r"(?<!\\)\[|--|~~|&&|\|\|")  # has another meaning in Python's classes
_SAMPLE: Final = "".join(map(chr, (*range(0x2800), *range(0x2800, 0xD800, 16), *range(0xE000, 0x10000, 16))))


def general_slices() -> list[str]:
    """Expressions for prose in any script, and for the text of any JSON string."""
    return [*_up_to(_PHRASE, _LENGTHS), *_up_to(_PROSE, _ANY_TEXT), *_up_to(_JSON_TEXT, _ANY_TEXT)]


def own_slices(schema: str) -> tuple[str, ...]:
    """Expressions for the widest character classes of the schema's patterns, and for what the patterns repeat; empty if
    the slices of prose are enough.
    """
    patterns = list(_patterns(schema))
    classes = dict.fromkeys(name for pattern in patterns for name in CLASS.findall(pattern))
    sizes: dict[str, int] = {}
    phrase = _members(_PHRASE)
    for name in islice((name for name in classes if not NESTED.search(name, 1)), _MAX_EXAMINED):
        characters = _members(name)
        if characters >= phrase:
            return ()
        sizes[name] = len(characters)
    widest = sorted((name for name in sizes if sizes[name] >= _MIN_CLASS), key=sizes.__getitem__)[-_MAX_CLASSES:]
    own = [expression for name in widest for expression in _up_to(_in_json(name), _LENGTHS)]
    repeated = dict.fromkeys(unit for pattern in patterns for unit in _repeated(pattern))
    units = (CLASS.sub(lambda found: _in_json(found[0]), unit) for unit in islice(repeated, _MAX_CLASSES))
    own += [expression for unit in units for expression in _up_to(f"(?:{unit})", _ALTERNATIVES)]
    if not repeated and widest and " " not in _members(widest[-1]):  # words that a space precedes
        own += [f" {expression}" for expression in _up_to(_in_json(widest[-1]), _LENGTHS[:1])]
    return tuple(own)


def _in_json(name: str) -> str:
    """A class without the characters that JSON escapes."""
    return f"[{name}&&{_JSON_TEXT}]"


def _up_to(characters: str, lengths: Sequence[int]) -> list[str]:
    return [f"{characters}{{1,{length}}}" for length in lengths]


def _repeated(pattern: str) -> Iterator[str]:
    """Yield each group that a pattern repeats often, reduced to its shortest alternatives of character classes and
    spaces. Takes time linear in the pattern's length.
    """
    opened: list[list[str]] = []  # the alternatives of each open group so far; _INNER stands for a group in one
    for found in _PIECE.finditer(pattern[:_MAX_PATTERN]):
        piece = found[0]
        if piece.startswith("("):
            opened.append([""])
            continue
        if not opened:
            continue
        if piece == "|":
            opened[-1].append("")
            continue
        if piece.startswith(")"):
            closed, piece = opened.pop(), _INNER
            if len(closed) > 1 and (found["any"] or int(found["most"] or 0) >= _MANY):
                simple = [
                    alternative
                    for alternative in closed
                    if _SIMPLE.fullmatch(alternative)
                    and not any(NESTED.search(name, 1) for name in CLASS.findall(alternative))
                ]
                if len(simple) > 1:
                    yield "|".join(sorted(simple, key=len)[:_MAX_ALTERNATIVES])
        if opened:
            opened[-1][-1] += piece


def _patterns(schema: str) -> Iterator[str]:
    left = [json.loads(schema)]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if isinstance(pattern := node.get("pattern"), str):
                yield pattern
            left += node.values()
        elif isinstance(node, list):
            left += node


@lru_cache(64)
def _members(name: str) -> frozenset[str]:
    """The characters of a sample that a class matches; none if Python cannot read the class."""
    try:
        return frozenset(re.findall(name, _SAMPLE))
    except re.error:
        return frozenset()
