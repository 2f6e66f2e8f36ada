"""Finds out, while an output is being written, whether it is certain to be rejected.

A gate is listed here if later text cannot change its rejection: a name or passage stays where it is. Gates that later
sentences can satisfy (shares of words, a minimum length) are not listed.

    stream  ──report──▶  the strings of the unfinished JSON  ──▶  their finished sentences  ──▶  checks

Only finished text is judged: a whole string, or the sentences of an unfinished one that end at least `LOOKAHEAD`
characters before its end and before its first quotation mark, since a second mark can turn the text between them into a
quotation. The finding must be the same with the following characters, which can still decide where a sentence ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from pydantic_core import from_json

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.plan import Early
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.gates import is_gate

LOOKAHEAD = 32  # characters; the checks look at most this far ahead of what they judge
Check = Callable[[str, Early], Rejection | None]

CHECKS: Final[Mapping[str, Check]] = {
    "banned": lambda text, early: checks.banned(text, early.banned, early.locale),
    "copied_passage": lambda text, early: checks.copied_passage("text", text, early.source, early.locale),
    "echo": lambda text, early: checks.echo(text, early.instruction),
    "loop": lambda text, early: checks.loop(text, early.locale),
    "meta_talk": lambda text, early: checks.meta_talk(text, early.source),
    "new_name": lambda text, early: checks.new_name(text, early.source, early.locale, early.allowed),
    "refusal": lambda text, early: checks.refusal(text, early.source),
    "too_long": lambda text, early: checks.too_long("text", text, early.locale, early.max_words),
    "unsafe_markup": lambda text, _: checks.unsafe_markup(text),
    "untranslated_passage": lambda text, early: checks.untranslated_passage(text, early.source, early.locale),
}
DISTINCT = "distinct"  # no two whole strings are the same
_MARK = re.compile('[“”„«»「」『』"*_`]')


def doomed(output: str, early: Early) -> Rejection | None:
    """Why the kind will reject this unfinished output, whatever follows; None if that is not certain."""
    try:
        whole = list(_strings(from_json(output, allow_partial=True), early.fields))
        begun = list(_strings(from_json(output, allow_partial="trailing-strings"), early.fields))
    except (ValueError, TypeError):  # a lone surrogate raises one or the other
        return None
    folded = [" ".join(text.casefold().split()) for text in whole] if DISTINCT in early.checks else []
    for place, plain in enumerate(folded):
        if plain in folded[:place]:
            return Rejection(RejectionReason.NEAR_DUPLICATE, f"two of them are the same: {whole[place][:80]!r}")
    unfinished = ["\n\n".join(begun)] if early.joined else begun[len(whole) :]
    judged = [] if early.joined else [(text, text) for text in whole]
    for finished, text in [*judged, *((_finished(text, early.locale), text) for text in unfinished)]:
        for name in early.checks if finished else ():
            found = CHECKS[name](finished, early) if name in CHECKS else None
            if found is None or not is_gate(found.reason, early.locale):
                continue
            certain = finished == text or found.reason is RejectionReason.TOO_LONG
            if certain or CHECKS[name](text, early) == found:  # the same result with the characters that follow
                return found
    return None


def _finished(text: str, locale: str) -> str:
    """The sentences of an unfinished text that are before its first quotation mark and followed by enough text."""
    mark = _MARK.search(text)
    most = min(len(text) - LOOKAHEAD, mark.start() if mark else len(text))
    end = last = 0
    for sentence, _ in pairwise(checks.sentences(text, locale)):
        end = text.index(sentence, end) + len(sentence)
        last = end if end <= most else last
    return text[:last]


def _strings(value: Any, fields: Sequence[str], *, inside: bool = False) -> Iterator[str]:  # noqa: ANN401  JSON
    if isinstance(value, str):
        yield from (value,) if inside else ()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(item, fields, inside=key in fields)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, fields, inside=inside)
