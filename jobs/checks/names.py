"""Names of people, organisations and brands that the source does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from typing import NamedTuple

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.full_names import first_names, mixed_name, other_surname, titled_name
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.segments import sentences
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.text import language as detect

_TOKEN = re.compile(r"[^\W\d_][\w'’&.-]*\w|[^\W\d_]")
_HASHTAG = re.compile(r"[#＃]\w{1,60}")  # its capitals tell nothing
_INNER_CAPITAL = re.compile(r"[A-Z]?[a-z]+[A-Z]\w*")
_AFTER_WHICH_CAPITALS_MEAN_NOTHING = re.compile(r"(?:^|[\"“”„«»‘「『(\[:：—–/|•*#_>!?.…¿¡]\s*|[-]\s+|\d[.)]\s*)$")
_PARTICLE = re.compile("van|bin|ibn|du|della|dos")  # words that join names and, in German, mean nothing else
# Letters that cannot adjoin a famous name: Latin to Cyrillic, Hebrew, Arabic, Devanagari, kana, Hangul.
_LETTERS = "A-Za-z\u00c0-\u052f\u05d0-\u05ea\u0621-\u065f\u066e-\u06d3\u0900-\u0963\u0971-\u097fァ-ヺー가-힣"
_ENDING = (  # what may follow a Korean name: particles, and words for companies
    "(?:전자|그룹|물산|코리아|자동차|측)?(?:은|는|이|가|을|를|의|와|과|도|만|에|에서|에게|로|으로|까지|부터|보다|처럼|이나|나|라는|이라는)?"
)
_KIND_OF_COMPANY = re.compile(
    " ?(?:公司|技[术術]|手[机機]|集[团團]|商城|物流|外卖|积木|卡|市場|グループ|Group|Motors|समूह|ग्रुप)$"
)
NOUNS_CAPITALIZED = frozenset({"de", "lb"})
_AFTER_LATIN = "\u0250"
_MIN_PREFIX, _MAX_PREFIX = 4, 8


def new_name(
    text: str, source: str, locale: str, allowed: Iterable[str] = (), *, title_case: bool = False
) -> Rejection | None:
    """Reject a name that is neither in the source nor in `allowed`.

    In scripts with capitals a name is a capitalized word within a sentence; in German, and where source and text are in
    different languages, one beside a first name, a title or a company's form; in other scripts one before a title. A
    name that everybody knows is recognized in any script and place. Countries, languages, months and days are no names,
    and inflected forms of a name count as the name. Where any word may have a capital (`title_case`), it tells nothing.
    """
    language = primary(locale)
    with_allowed = "\n".join([source, *allowed])
    known = _known(with_allowed)
    foreign = (detect.language(source) or language) != language
    transliterated = foreign and (not _has_capitals(source) or _is_latin(source) != _is_latin(text))
    plain = _HASHTAG.sub(" ", text)
    if countries := _ordinary(language).countries:
        plain = countries.sub(lambda match: match[0].lower(), plain)
    strict = title_case or foreign or language in NOUNS_CAPITALIZED
    for sentence in () if transliterated else sentences(plain, locale):
        for name in _names(sentence, language, strict=strict):
            if not known.has(name):
                return _rejection(name, "is not in the source", text)
    tells_names = not transliterated and language not in NOUNS_CAPITALIZED
    if tells_names and (mixed := mixed_name(plain, with_allowed)):
        return _rejection(mixed, "is of two names of the source", text)
    famous, each_famous = _famous()
    for match in famous.finditer(text):
        aliases = next(each for each in each_famous if each.search(match[0]))
        if not aliases.search(with_allowed) and _KIND_OF_COMPANY.sub("", match[0]) not in with_allowed:
            return _rejection(match[0], "is not in the source", text)
    if not foreign and (titled := titled_name(text, language, source) or other_surname(text, language, source)):
        return _rejection(titled, "is not in the source", text)
    return None


def unknown_name(tag: str, source: str, locale: str, allowed: Iterable[str] = ()) -> Rejection | None:
    """A name in a tag, such as a person, a company or a well-known name, that is neither in the source nor in
    `allowed`. Tags may be in title case, and may name places that the source implies.
    """
    found = new_name(tag, source, locale, allowed, title_case=True)
    return found and found._replace(reason=RejectionReason.UNSUPPORTED)


def _rejection(name: str, fault: str, text: str) -> Rejection:
    start = text.find(name)
    span = None if start < 0 else (start, start + len(name))
    return Rejection(RejectionReason.NAME_NOT_IN_SOURCE, f"{name!r} {fault}", span)


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _has_capitals(text: str) -> bool:
    """Whether at least half of a text's letters are of scripts with capitals, judged by its beginning."""
    letters = _first_letters(text)
    return sum(char.lower() != char.upper() for char in letters) >= len(letters) / 2


def _is_latin(text: str) -> bool:
    letters = _first_letters(text)
    return sum(char < _AFTER_LATIN for char in letters) > len(letters) / 2


def _first_letters(text: str) -> list[str]:
    return [char for char in text[:2000] if char.isalpha()]


def _names(sentence: str, language: str, strict: bool) -> Iterator[str]:
    tokens = list(_TOKEN.finditer(sentence))
    longer = [token[0] for token in tokens if len(token[0]) >= 4]
    if not strict and len(longer) >= 3 and sum(word[0].isupper() for word in longer) > 0.6 * len(longer):
        return  # in title case, as a headline
    ordinary = _ordinary(language)
    for position, token in enumerate(tokens):
        word = token[0].removesuffix("'s").removesuffix("’s").strip(".'’-")
        if len(word) < 3 or word.casefold() in ordinary.words:
            continue
        if strict:
            found = token[0][0].isupper() and _is_marked(tokens, position)
        else:
            found = _is_capitalized_name(tokens, position, sentence)
        # Each part of "Dutch-Belgian" is ordinary; the other part of "Belgian-led" is no name anyway.
        parts = [part for part in word.split("-") if part[:1].isupper()] or [word]
        if found and not all(ordinary.has(part) for part in parts):
            yield word


def _is_capitalized_name(tokens: list[re.Match[str]], position: int, sentence: str) -> bool:
    token = tokens[position]
    if _INNER_CAPITAL.fullmatch(token[0]):
        return True
    if not token[0][0].isupper() or token[0].isupper():
        return False
    if not _AFTER_WHICH_CAPITALS_MEAN_NOTHING.search(sentence[max(0, token.start() - 4) : token.start()]):
        return True
    # At the beginning of a sentence, only a first name before another name.
    after = tokens[position + 1] if position + 1 < len(tokens) else None
    beside = after is not None and token.end() + 1 == after.start() and after[0][0].isupper()
    return beside and token[0] in first_names()


def _is_marked(tokens: list[re.Match[str]], position: int) -> bool:
    """Whether a word is next to a first name, a title or a company's form."""
    before = tokens[position - 1] if position else None
    after = tokens[position + 1] if position + 1 < len(tokens) else None
    if before and before.end() + 2 >= tokens[position].start():
        marks = (first_names(), table("names")["titles"])
        if any(before[0].strip(".") in each for each in marks):
            return True
    if position > 1 and _PARTICLE.fullmatch(tokens[position - 1][0]):  # as in Franziska van Almsick
        first, particle, last = tokens[position - 2 : position + 1]
        joined = first.end() + 1 == particle.start() and particle.end() + 1 == last.start()
        if joined and first[0][0].isupper() and not first[0].isupper():
            return True
    if after is None or tokens[position].end() + 1 < after.start():
        return False
    return after[0].strip(".") in table("names")["company_suffixes"]


class _Known:
    """The words of a source, which can be looked up in inflected forms."""

    def __init__(self, source: str) -> None:
        words = {
            part.casefold() for token in _TOKEN.finditer(source) for part in re.split(r"[-'’.&]", token[0]) if part
        }
        self._prefixes = {word[:length] for word in words for length in range(3, _MAX_PREFIX + 1)} | words
        # Short Slavic names change their last letter: "Ады" is "Ада".
        self._stems = {word[:-1] for word in words if len(word) in {3, 4} and "\u0400" <= word[0] <= "\u052f"}
        self._text = source.casefold()
        initials = re.findall(r"(?<![^\W_])[^\W\d_]", source)
        self._initials = "".join(initials).casefold()

    def has(self, name: str) -> bool:
        """Whether every part of a name is known, in any inflection or as the initials of successive words."""
        for part in re.split(r"[-'’.&]", name.casefold()):
            prefix = part[: min(max(_MIN_PREFIX, len(part) - 3), _MAX_PREFIX)]
            found = prefix in self._prefixes or part in self._text or (len(part) <= 6 and part in self._initials)
            if len(part) > 2 and not (found or part[:-1] in self._stems):
                return False
        return True


_known = lru_cache(maxsize=32)(_Known)  # all fields of an artifact are compared with the same source


@cache
def _famous() -> tuple[re.Pattern[str], tuple[re.Pattern[str], ...]]:
    """A pattern that finds any famous name, and a pattern for each name with its aliases.

    They match whole words: in Arabic and Hebrew with attached prefixes, in Korean with particles.
    """
    before = rf"(?<![{_LETTERS}])(?:[وفبلك]{{0,2}}(?:ال|لل)?|[והבלמשכ]{{0,3}})"
    after = rf"(?:(?![{_LETTERS}])|(?=[가-힣]){_ENDING}(?![가-힣]))"
    names = table("names")["famous"]["names"]
    each_name = tuple(re.compile(f"{before}(?:{aliases}){after}") for aliases in names)
    return re.compile(f"{before}(?:{'|'.join(names)}){after}"), each_name


class _Ordinary(NamedTuple):
    """Capitalized words that are not names.

    `words` are countries, languages, months and days among others. People and adjectives begin with one of `stems`:
    Belg(ium), Belgian. `countries` finds countries of several words, such as "United States".
    """

    words: frozenset[str]
    stems: frozenset[str]
    countries: re.Pattern[str] | None

    def has(self, word: str) -> bool:
        """Whether a word is an ordinary one, or derived from one."""
        return word.casefold() in self.words or any(word.casefold().startswith(stem) for stem in self.stems)


@cache
def _ordinary(language: str) -> _Ordinary:
    from babel import Locale, UnknownLocaleError  # noqa: PLC0415  reads a file of CLDR

    found, several = set(table("names")["ordinary"].split()), set[str]()
    with suppress(UnknownLocaleError):
        cldr = Locale("nb" if language == "no" else language)
        forms = (*cldr.months.values(), *cldr.days.values())
        names = [
            name
            for form in forms
            for width in ("wide", "abbreviated")
            if width in form
            for name in form[width].values()
        ]
        single = [name for name in cldr.territories.values() if not re.search(r"[\s-]", name)]
        several = {name for name in cldr.territories.values() if " " in name or "-" in name}
        for name in (*single, *cldr.languages.values(), *names):
            found |= {part.casefold() for part in re.split(r"[\s(),&.-]+", name) if len(part) > 2}
    stems = frozenset(word[: max(4, len(word) - 3)] for word in found if len(word) >= 6)
    longest_first = "|".join(map(re.escape, sorted(several, key=len, reverse=True)))
    countries = re.compile(rf"(?<!\w)(?:{longest_first})(?!\w)") if several else None
    return _Ordinary(frozenset(found), stems, countries)
