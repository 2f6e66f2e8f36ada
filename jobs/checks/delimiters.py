"""What in a source imitates the end of it: turns of a chat, JSON, markup that no reader sees, marks of a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator

_USER = r"^[ \t]{0,8}(?:\*\*)?(?:user|human)(?:\*\*)?[ \t]{0,3}:"
_MODEL = r"[ \t]{0,8}(?:\*\*)?(?:assistant|ai|model|bot|system)(?:\*\*)?[ \t]{0,3}:"
_KEY = r'"\w{1,40}"\s{0,4}:'
_REST = r"[^\n]{0,400}"  # of the line
_PIECE = re.compile(
    "|".join(
        (
            rf"{_USER}{_REST}\n{{1,3}}{_MODEL}{_REST}",
            rf"{_USER}[^\n]{{0,80}}\b(?:forget|ignore|disregard|instead|stop)\b{_REST}",
            rf'"\s{{0,4}}\}}\s{{0,4}}[\],}}]{_REST}',
            rf"\{{\s{{0,4}}{_KEY}{_REST}",
            rf'{_KEY}\s{{0,4}}"[^"\n]{{0,400}}"\s{{0,4}},\s{{0,4}}{_KEY}{_REST}',
            rf'^[ \t]{{0,20}}{_KEY}\s{{0,4}}"[^"\n]{{0,400}}",?[ \t]{{0,4}}$',
            r"<!--(?s:.){0,400}?-->",
            r"<(?P<name>[a-z]{1,12})\b[^>\n]{0,80}\bdisplay\s?:\s?none[^>\n]{0,80}>(?s:.){0,400}?</(?P=name)>",
            r"<\|im_start\|>(?s:.){0,400}?<\|im_end\|>",
            r"<\s?/\s?source\s?>(?s:.){0,400}?<\s?source\s?>",
        )
    ),
    re.IGNORECASE | re.MULTILINE,
)
_KEYS = re.compile(rf"{_KEY}|<(?!!)[^<>\n]{{1,120}}>")
_QUESTION = re.compile(r"[^.!?:\n]{8,160}(?=\?)")


def delimiters(source: str) -> Iterator[tuple[int, int]]:
    """Where such pieces begin and end."""
    return (match.span() for match in _PIECE.finditer(source))


def without_keys(piece: str) -> str:
    """A piece without the keys of its JSON and without its tags, which demand nothing."""
    return _KEYS.sub(" ", piece)


def questions(piece: str) -> list[str]:
    """What a piece wants to have answered."""
    return _QUESTION.findall(piece)
