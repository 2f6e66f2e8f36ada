"""Texts that follow an instruction hidden in their source, and sources that imitate their own end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.copying import normalized
from thothy_ai.jobs.checks.patterns import Patterns
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.text import language as detect

_REACH = 400  # characters after a command that are searched for what to write
_MARKED = re.compile(r"[\"“”„«»「」『』'‘’`]([^\"“”„«»「」『』`\n]{2,200}?)[\"“”„«»「」『』'‘’`]")
_SHOUTED = re.compile(r"\b[A-Z][A-Z0-9_-]{3,}(?:[ _][A-Z0-9]{2,}){0,6}\b")
_MIN_SHOUTED_WORD = 5  # characters: a shorter word is not a demand on its own
_NAMED = re.compile(r"(?<=[a-zß-ÿа-яё,] )[A-Z][a-zß-ÿ]{3,30}(?:[A-Z][a-z]{1,30})?\b")  # within a sentence
_NOUNS_CAPITALIZED = frozenset({"de"})
_STATED = re.compile(r"[:：]\s*([^\n:：]{4,160}?)(?:[.!?。！？।](?=\s|$)|\n|$)", re.MULTILINE)  # what follows a colon
_LINK = re.compile(
    r"\b[a-z0-9-]{3,40}\.(?:example|com|net|org|io|info|shop|biz|ru|br|de)\b|https?://[^\s)\]>\"']+|\bwww\.[^\s)\]>\"']+|[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{2,64}"
)
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\u202a-\u202e\u2066-\u2069\ufeff]")  # may divide the words of a command
_SENTENCE_END = re.compile(r"[.!?。！？।\n]")
_OWN_WORDS = re.compile(
    r"^(?:that|the words?|the phrase|only|exactly|instead|dass|nur|que|only the|a|an|the) ", re.IGNORECASE
)
# What imitates the end of a source: turns of a chat, JSON, markup that no reader sees, marks of a prompt.
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
# JSON keys and tags: not part of a demand.
_KEYS = re.compile(rf"{_KEY}|<(?!!)[^<>\n]{{1,120}}>")
_QUESTION = re.compile(r"[^.!?:\n]{8,160}(?=\?)")


def obeys_source(text: str, source: str) -> Rejection | None:
    """Reject a text that contains what an instruction in its source demands, and the rest of the source does not have.

    A text that renders the instruction itself, as a translation must, passes.
    """
    demanded = _demanded(source)
    if not demanded or _commands().is_in(text):
        return None
    plain = f" {normalized(text)} "
    found = next(
        (demand for demand in demanded if f" {demand} " in plain or (not demand.isascii() and demand in plain)), None
    )
    return Rejection(RejectionReason.OBEYS_SOURCE, f"does what the source demands: {found!r}") if found else None


@lru_cache(maxsize=4096)  # each call of a plan asks for the same sentences of its source
def instructs(text: str) -> bool:
    """Whether a text contains an instruction to a language model, or imitates the end of the source."""
    return next(_instructions(_INVISIBLE.sub("", text)), None) is not None


@lru_cache(maxsize=32)  # each call of a plan shows the same source
def without_instructions(source: str) -> str:
    """A source without instructions to a language model (from their sentence to the end of the line) and without
    imitations of its end. If less than half is left, the source is returned unchanged: it may be about such
    instructions, and `obeys_source` rejects outputs that follow them.
    """
    visible = _INVISIBLE.sub("", source)
    kept = _cut(visible, list(_instructions(visible)))
    return kept if kept != visible and 2 * len(kept.strip()) >= len(visible.strip()) else source


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _demanded(source: str) -> tuple[str, ...]:
    """The texts, normalized, that instructions in a source demand and the rest of the source does not have."""
    source = _INVISIBLE.sub("", source)
    regions, pieces = _regions(source), [match.span() for match in _PIECE.finditer(source)]
    if not regions and not pieces:
        return ()
    elsewhere = f" {normalized(_cut(source, [*regions, *pieces]))} "
    found = [demand for start, end in regions for demand in _demands(_KEYS.sub(" ", source[start:end]))]
    found += [demand for start, end in pieces for demand in _demands_of_piece(_KEYS.sub(" ", source[start:end]))]
    demands = set(map(normalized, found))
    long_enough = (each for each in demands if (4 if each.isascii() else 2) <= len(each) <= 200 and not each.isdigit())
    return tuple(sorted(demand for demand in long_enough if f" {demand} " not in elsewhere))


def _instructions(source: str) -> Iterator[tuple[int, int]]:
    yield from _regions(source)
    yield from (match.span() for match in _PIECE.finditer(source))


def _cut(text: str, parts: Sequence[tuple[int, int]]) -> str:
    """A text without these parts of it, which may overlap."""
    kept, position = [], 0
    for start, end in sorted(parts):
        kept.append(text[position : max(start, position)])
        position = max(position, end)
    return "".join((*kept, text[position:]))


@lru_cache(maxsize=64)  # `without_instructions` and `_demanded` are asked of the same source
def _regions(source: str) -> tuple[tuple[int, int], ...]:
    """From the sentence of a command to the end of its paragraph, within reach."""
    found: list[tuple[int, int]] = []
    last = -1
    for match in _commands().finditer(source):
        if match.start() < last:
            continue
        start = max(
            (end.end() for end in _SENTENCE_END.finditer(source, max(0, match.start() - 200), match.start())), default=0
        )
        line_end = source.find("\n", match.end())
        last = min(line_end if line_end >= 0 else len(source), match.end() + _REACH)
        found.append((max(start, match.start() - 200), last))
    return tuple(found)


def _demands(region: str) -> Iterator[str]:
    for pattern in (_MARKED, _SHOUTED, _LINK, _STATED):
        yield from (match[match.lastindex or 0] for match in pattern.finditer(region))
    for command in _commands().finditer(region):
        end = _SENTENCE_END.search(region, command.end())
        start = max((each.end() for each in _SENTENCE_END.finditer(region, 0, command.start())), default=0)
        sentence = region[start : end.start() if end else len(region)]
        named = _NAMED.findall(sentence)
        if named and detect.language(sentence) not in _NOUNS_CAPITALIZED:
            yield from named
    verbs = rf"(?<!\w)(?:{'|'.join(table('prompt_injection')['demands'])})"
    for match in re.finditer(verbs, region, re.IGNORECASE):
        clause = _SENTENCE_END.split(region[match.end() :], maxsplit=1)[0].strip()
        yield _OWN_WORDS.sub("", clause)


def _demands_of_piece(piece: str) -> Iterator[str]:
    yield from _QUESTION.findall(piece)
    for shouted in _SHOUTED.findall(piece):
        words = shouted.replace("-", " ").split()
        yield from (word for word in words if word.isalpha() and len(word) >= _MIN_SHOUTED_WORD)
    for pattern in (_MARKED, _SHOUTED, _LINK):
        yield from (match[match.lastindex or 0] for match in pattern.finditer(piece))
    if detect.language(piece) not in _NOUNS_CAPITALIZED:
        yield from _NAMED.findall(piece)


@cache
def _commands() -> Patterns:
    return Patterns(table("prompt_injection")["commands"])
