"""Names of persons: with a title, in scripts without capitals, and mixed from two names of the source."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import chain, islice, pairwise

from thothy_ai.jobs.checks.tables import table

_PARTICLES = "(?:d[aeiu]|del|della|van|von|bin|al|el|le|la) "
_RUN = re.compile(rf"(?<![\w'’-])[^\W\d_a-z][\w'’-]+(?: (?:{_PARTICLES})?[^\W\d_a-z][\w'’-]+)+")
_PARTICLE = re.compile(f" {_PARTICLES}| ")
_BEGIN = re.compile(r"(?:^|[.!?…:]|\n)[\s“„«\"'(–—-]*$")
_BESIDE = 4  # characters before a name
_MIN_PREFIX = 4
_MAX_RUNS, _MAX_PARTS, _MAX_PAIRS = 300, 8, 60  # names of a source, their words, and names of a text
_PREFIX = "[odlODL]['’]"  # of a surname: O'Brien, D'Angelo


def mixed_name(text: str, source: str) -> str | None:
    """A name of a text whose frequent first name and whose surname belong to two different names of the source.

    Inflected forms count as the same word. Two words that are in one name of the source are not mixed, whatever is
    between them.
    """
    known, small = _runs(source), _small_words(source)
    pairs = chain.from_iterable(map(pairwise, _runs(text)))
    persons = (pair for pair in pairs if pair[0] in first_names())
    for first, last in islice(persons, _MAX_PAIRS):
        if first.lower() in small or any(_has(run, first) and _has(run, last) for run in known):
            continue
        begins = any(_same(run[0], first) or _same(run[-2], first) for run in known)
        if begins and any(_same(run[-1], last) for run in known):
            # The source may join the words of a name in another way: "Karen and Aaron Yellowtail".
            one, other = (re.escape(_bare(each)[:_MIN_PREFIX]) for each in (first, last))
            between = r"[\w'’-]{0,30}[ ,]{1,3}(?:[\w'’-]{1,30} ){1,3}"
            beside = rf"(?i)(?<![\w'’-])(?:{_PREFIX})?{one}{between}(?:{_PREFIX})?{other}"
            if not re.search(beside, source):
                return f"{first} {last}"
    return None


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _runs(text: str) -> tuple[tuple[str, ...], ...]:
    """The names of a text that have several words, all capitalized, as tuples of words."""
    found: dict[tuple[str, ...], None] = {}
    for match in _RUN.finditer(text):
        parts = tuple(_PARTICLE.split(match[0]))
        if any(not part[0].isupper() or part.isupper() for part in parts):
            continue
        begins = len(parts) == 2 and _BEGIN.search(text, max(0, match.start() - _BESIDE), match.start())
        if not begins or parts[0] in first_names() or text[match.end() : match.end() + 1] == ",":
            found[parts] = None  # otherwise the first word begins a sentence and may be no name
    return tuple(each[:_MAX_PARTS] for each in islice(found, _MAX_RUNS))


@cache
def first_names() -> frozenset[str]:
    """Frequent first names in Latin letters."""
    return frozenset(table("names")["first_names"].split())


@lru_cache(maxsize=32)  # as above
def _small_words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"[^\W\d_][\w'’-]*", text) if word[0].islower())


def _has(run: tuple[str, ...], word: str) -> bool:
    return any(_same(part, word) for part in run)


def _same(one: str, other: str) -> bool:
    one, other = _bare(one), _bare(other)
    shared = max(_MIN_PREFIX, min(len(one), len(other)) - 2)
    return one == other or (min(len(one), len(other)) >= _MIN_PREFIX and one[:shared] == other[:shared])


def _bare(word: str) -> str:
    """The word without its prefix and what follows an apostrophe: of "O'Brien's", "brien"."""
    return re.split("['’]", re.sub(f"^{_PREFIX}", "", word))[0].casefold()


def other_surname(text: str, language: str, source: str) -> str | None:
    """A given name of the source after the wrong surname, in Chinese characters."""
    known: dict[str, set[str]] = {}
    for surname, given in _full_names(source, language):
        known.setdefault(given, set()).add(surname)
    for surname, given in _full_names(text, language):
        if surname not in known.get(given, {surname}) and surname + given not in source:
            return surname + given
    return None


@lru_cache(maxsize=32)  # as above
def _full_names(text: str, language: str) -> tuple[tuple[str, str], ...]:
    entry = table("names")["full"].get(language)
    return tuple(re.findall(f"(?={entry})", text)) if entry else ()


def titled_name(text: str, language: str, source: str) -> str | None:
    """A name with a title, in a script without capitals, of which the source has no part."""
    pattern = table("names")["titled"].get(language)
    for match in re.finditer(pattern, text) if pattern else ():
        name = next(filter(None, match.groups()))
        if not any(_is_known(part, source, language) for part in re.split("[・ ]", name) if part):
            return str(name)
    return None


def _is_known(name: str, source: str, language: str) -> bool:
    """Whether a source has a name, its beginning (in Arabic and Hindi), or elsewhere its last two characters
    as a word.
    """
    if name in source:
        return True
    if language in {"ar", "hi"}:
        return name[:_MIN_PREFIX] in source
    given = name[-2:]
    return given in source and (len(name) <= len(given) or not re.search(rf"\w{re.escape(given)}", source))
