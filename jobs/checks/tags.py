"""Tags in another language than their artifact."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.languages import surely_foreign
from thothy_ai.jobs.checks.names import NOUNS_CAPITALIZED
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.vocabulary import is_known, listed
from thothy_ai.jobs.text import language as detect
from thothy_ai.jobs.text.locales import locale_name, script_of

_WORD = re.compile(r"[^\W\d_]{3,}")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]+")


def foreign_tags(tags: Sequence[str], source: str, locale: str) -> Iterator[Rejection]:
    """Reject each tag that is in English or another script instead of the locale's language, and all tags that together
    are in another language. Abbreviations, names, and the words of a source in the locale's language pass.

    A single loan such as "Carsharing" or "Machine Learning" passes; needs the word lists of `simplemma` to find
    English tags beside others.
    """
    found = set[str](_WORD.findall(source))
    if detect.language(source) not in {None, primary(locale)}:  # keep only its names
        small = {word for word in found if word.islower()}
        found = {word for word in found if word[0].isupper() and word.lower() not in small}
    known = {word.casefold() for word in found}
    new = [[word for word in _WORD.findall(tag) if word.casefold() not in known] for tag in tags]
    signs = [{_sign(word, locale) for word in words} for words in new]
    has_nouns = primary(locale) in NOUNS_CAPITALIZED
    # A source word also shows that the tags are in its language, unless its capital makes it a name.
    common = (word for tag in tags for word in _WORD.findall(tag) if word.islower() or has_nouns)
    every = set[str]().union(*signs, (_sign(word, locale) for word in common))
    rest = ", ".join(" ".join(words) for words in new if words)
    # Several loan words together look like the other language.
    together = "own" not in every and ("foreign" in every or (every - {"either"} and surely_foreign(rest, locale)))
    for number, (tag, words, found) in enumerate(zip(tags, new, signs, strict=True)):
        is_loan = len(words) < 2 or all(word[0].isupper() for word in words)
        alone = "foreign" in found and "own" not in found and not is_loan and len(words) == len(_WORD.findall(tag))
        if words and (alone or together):
            detail = f"a tag is not in {locale_name(locale)}: {tag[:60]!r}"
            yield Rejection(RejectionReason.FOREIGN_TAG, detail, (0, len(tag))).at("tags", number)


def _sign(word: str, locale: str) -> str:
    """The language that a word points to: "own", "foreign", "either" or, for a name or abbreviation, "neither"."""
    if word.isupper() and word.lower() != word:
        return "neither"
    if script_of(locale) != "Latn":
        return "foreign" if _LATIN.fullmatch(word) else "own"
    if (language := listed(locale)) is None:
        return "neither"
    own, english = is_known(word.lower(), language), language != "en" and is_known(word.lower(), "en")
    return {(True, False): "own", (False, True): "foreign", (True, True): "either"}.get((own, english), "neither")
