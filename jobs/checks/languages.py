"""The language of a text, and for Chinese its script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.copying import QUOTATION
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.segments import located
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.checks.vocabulary import WITH_WORDS, has_word_lists, is_known, listed
from thothy_ai.jobs.text import language as detect
from thothy_ai.jobs.text.locales import language_of, locale_name, script_of, tag_of
from thothy_ai.jobs.text.strings import blanked

_MIN_LETTERS = 15  # fewer could be in any language
_MIN_SENTENCE = 40  # characters from which on the language of a sentence is certain
_MAX_FOREIGN = 1 / 3  # of the characters
_SHORT = 60  # letters: in shorter texts, languages that models seldom write by mistake are often detected wrongly
_FREQUENT = frozenset(
    {"ENGLISH", "GERMAN", "FRENCH", "SPANISH", "ITALIAN", "PORTUGUESE", "DUTCH", "RUSSIAN", "CHINESE"}
)
_SELDOM = frozenset(  # languages wrongly detected in sentences with foreign names
    ["TAGALOG", "GANDA", "SHONA", "SOTHO", "TSONGA", "TSWANA", "XHOSA", "ZULU", "YORUBA", "SOMALI", "MAORI", "BASQUE"]
)
_MAY_BE_SELDOM = 120  # letters: in longer texts, these languages are believed
_NOT_BY_MISTAKE = _FREQUENT | {"LATIN"}  # languages that detection is right about even for a short sentence
_MIN_SURE, _SURE, _UNLIKELY = 20, 0.9, 0.01  # letters; probabilities: at least, at most (expected one)
_SURE_BARE = 0.8  # of a sentence without its names
_MIXED_WITH_ENGLISH = frozenset({"ENGLISH", "TAGALOG"})
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_SENTENCE = re.compile(r"(?:\b[a-zß-ÿ][\w'’-]*[ ,]+){2,}[\w'’-]+\W*$")  # words in small letters at its end
_NOT_LATIN = re.compile(r"[^\W\d_\u0000-\u024f]")
_PROSE = re.compile(r"(?:\b[^\W\d_A-Z][\w'’-]*[ ,]+){3}")
_MIN_LIKELY = 0.02  # for one sentence of several
_LIKELY = 0.2  # related languages share the probability of a short text
_RELATED = (
    frozenset({"BOKMAL", "NYNORSK", "DANISH"}), frozenset({"CROATIAN", "BOSNIAN", "SERBIAN"}),
    frozenset({"HINDI", "MARATHI"}), frozenset({"INDONESIAN", "MALAY"}), frozenset({"ZULU", "XHOSA"}),
    frozenset({"SOTHO", "TSWANA"}),
)  # fmt: skip
_RELATED_LIKELY = 0.03
# English words that are common in English only.
_ENGLISH = frozenset(
    """the and with they their them this that these those from which would could should about been who whom whose how
    when what where there than because before between while its it you your our into out only every each other such any
    nobody everyone both does did may might says said""".split()  # noqa: SIM905  a list of words to read
)
# Other common English words, and by language those that it shares with English.
_ALSO_ENGLISH = frozenset(
    """a an are as at be by can few for had has have he here if is like many more most much my new no not now of off on
    or out over so some than then to too twice up us very was we were will""".split()  # noqa: SIM905  as above
)
_SHARED = {
    "de": "an so was will", "fr": "a an as if on or us", "es": "a as has he no", "it": "a no so",
    "pt": "a as for no so", "nl": "as at had is like of over was we", "sv": "an at be for is over",
    "da": "a an at be for have is over to", "nb": "a an at be for is over to", "pl": "a as by my no on to we",
    "cs": "a as by my no on to", "sk": "a as by my no on to", "ro": "a an are as if or", "hu": "a be is most no",
    "fi": "he no on so", "tr": "a an as at can of on to", "ca": "a as has he no on so", "et": "as no on",
}  # fmt: skip
_ONLY_ENGLISH = {code: _ENGLISH | _ALSO_ENGLISH - frozenset(words.split()) for code, words in _SHARED.items()}
_IN_NO_OTHER = frozenset.intersection(*_ONLY_ENGLISH.values())
# Words that most sentences of a language have and, although a dictionary may list them, no English one: a sentence with
# one of them has an English phrase, as in "Ready to go: der Koffer".
_NEVER_ENGLISH = {
    code: frozenset(words.split())
    for code, words in {
        "de": "das dem der des ein ist und zu", "fr": "au ce de des du est et la le les sa ses un une",
        "es": "con de del el en es la las lo los se un una y", "it": "di e il la le lo si un una",
        "pt": "da de e na os um", "nl": "dat de en er het op", "sv": "det en och om", "da": "det en og om",
        "nb": "det en og om",
    }.items()
}  # fmt: skip
_MIN_WORDS, _MIN_IF_SURE = 3, 2  # in small letters, by which a sentence's language is told; if the detector is sure
_THEIRS, _OWN = 0.8, 0.5  # the shares of them that another language knows at least, and that the expected one does not
# What is the same in any language: links, code, placeholders, tags, hashtags, mentions.
_NO_LANGUAGE = re.compile(
    r"```.{0,20000}?```|`[^`\n]{1,200}`|https?://\S+|\{[^{}\n]{1,80}\}|<[^<>\n]{1,200}>|[#@]\w+", re.DOTALL
)
_QUOTATION = re.compile(r"“[^”“\n]{1,400}”|„[^“”„\n]{1,400}[“”]|«[^«»\n]{1,400}»|»[^«»\n]{1,400}«|「[^「」\n]{1,400}」")
_NAME = re.compile(r"(?<![.!?…:\n] )(?<!^)\b[^\W\d_a-zß-ÿа-яё][\w'’-]*\b|\b\w{0,30}[a-z][A-Z]\w{0,30}\b|\b[A-Z]{2,}\b")


class _Foreign(NamedTuple):
    """A sentence in another language, or a whole text, with its place."""

    text: str
    start: int
    language: str


def wrong_language(text: str, locale: str) -> Rejection | None:
    """Reject a text if all of it, over a third of its characters, or a sentence, judged by its words, is in another
    language than the locale's. The span covers the whole foreign passage.

    If the text fails with its links, code, names and quotations, it is judged again without them. Text with fewer than
    fifteen letters could be in any language and passes. In Chinese, the locale's script is checked, too.
    """
    plain = blanked(_NO_LANGUAGE, text)
    if sum(map(str.isalpha, plain)) < _MIN_LETTERS:
        return None
    rest = _NAME.sub(" ", _QUOTATION.sub(" ", plain))  # without quotations and capitalized words
    found = _foreign_part(plain, locale)
    if found and sum(map(str.isalpha, rest)) >= _MIN_LETTERS and not _foreign_part(rest, locale):
        found = None
    expected = f"expected {locale_name(locale)}"
    if found and found.text == plain:
        confidence = next(iter(detect.confidences(plain).values()))
        detail = f"{expected}, detected {found.language} ({confidence:.2f})"
        return Rejection(RejectionReason.WRONG_LANGUAGE, detail, (0, len(text)))
    by_words = (
        _Foreign(sentence, start, language_of(code).name)
        for start, sentence in located(blanked(QUOTATION, plain), locale)
        if (code := _language_by_words(sentence, locale))
    )
    if found := found or next(by_words, None):
        detail = f"{expected}, found {found.language}: {found.text[:80]!r}"
        return Rejection(RejectionReason.WRONG_LANGUAGE, detail, _passage(found, plain, locale))
    tag = tag_of(locale)
    if not tag or tag.language != "zh" or not (tag.script or tag.region):
        return None
    pairs = table("scripts")["simplified_traditional"].split()
    simplified, traditional = ({pair[side] for pair in pairs} for side in (0, 1))
    counts = {"Hans": sum(char in simplified for char in text), "Hant": sum(char in traditional for char in text)}
    other, name = ("Hans", "simplified") if script_of(locale) == "Hant" else ("Hant", "traditional")
    if counts[other] <= max(2, counts.get(script_of(locale), 0)):
        return None
    detail = f"expected {locale_name(locale)}, found {name} characters"
    return Rejection(RejectionReason.WRONG_LANGUAGE, detail, (0, len(text)))


def _passage(first: _Foreign, text: str, locale: str) -> tuple[int, int]:
    """The start and end of a foreign sentence together with its neighbours in the same language."""

    def is_foreign(sentence: str) -> bool:
        return _detected(sentence) == first.language and not _is_in(sentence, locale)

    start, end = first.start, first.start + len(first.text)
    parts = located(text, locale)
    for place, sentence in takewhile(lambda part: is_foreign(part[1]), (part for part in parts if part[0] >= end)):
        end = place + len(sentence)
    before = reversed([part for part in parts if part[0] + len(part[1]) <= start])
    for place, _ in takewhile(lambda part: is_foreign(part[1]), before):
        start = place
    return start, end


def _language_by_words(sentence: str, locale: str) -> str | None:
    """Another language that has the words of a sentence, ignoring names; English can also be told by words of
    its own.
    """
    every = _WORD.findall(sentence)
    found = [word for word in every if word.islower()]
    if len(found) < _MIN_IF_SURE or len(every) < _MIN_WORDS:  # two words alone are a tag or a term
        return None
    english = _ONLY_ENGLISH.get(primary(locale), _IN_NO_OTHER) if has_word_lists() else _ENGLISH
    telling = sum(word in english for word in found) + (sentence.partition(" ")[0].lower() in _ENGLISH)
    expected, own, detected = language_of(locale).detector_name, listed(locale), detect.language(sentence)
    others = {"en", detected or "en"} if expected not in _MIXED_WITH_ENGLISH else {detected or "en"} - {"en"}
    if not has_word_lists():
        return "en" if "en" in others and len(found) >= _MIN_WORDS and telling > len(found) / 3 else None
    without_names = " ".join(_NAME.sub(" ", sentence).split())
    no_english = _NEVER_ENGLISH.get(own or "", frozenset())

    def is_theirs(code: str) -> bool:
        return _share_known(found, code) >= _THEIRS

    def is_not_ours(code: str) -> bool:
        if code == detected and _is_surely_foreign(without_names, locale, _SURE_BARE):
            return True
        by_english = code == "en" and telling + (detected == "en") > 1
        by_english = by_english and not any(word in no_english or not is_known(word, "en") for word in found)
        return len(found) >= _MIN_WORDS and (by_english or (own is not None and _share_known(found, own) < _OWN))

    # A dictionary other than English takes up to two seconds to load: the second check seldom needs one.
    ordered = (is_not_ours, is_theirs) if own == "en" else (is_theirs, is_not_ours)
    for code in sorted(others & WITH_WORDS):
        is_frequent = language_of(code).detector_name in _FREQUENT - {expected}
        if is_frequent and all(check(code) for check in ordered):
            return code
    return None


def surely_foreign(text: str, locale: str) -> Rejection | None:
    """Reject a short text that is certainly in another language, one that models know well.

    For texts in which `wrong_language` would find too much, such as a title with names.
    """
    plain = _NO_LANGUAGE.sub(" ", text)
    if sum(map(str.isalpha, plain)) < _MIN_SURE or not _is_surely_foreign(plain, locale):
        return None
    return Rejection(RejectionReason.WRONG_LANGUAGE, f"expected {locale_name(locale)}: {text[:80]!r}")


def _is_surely_foreign(text: str, locale: str, sure: float = _SURE) -> bool:
    found = detect.confidences(text)
    top, confidence = next(iter(found.items()))
    expected = language_of(locale).detector_name
    if _has_other_script(text, locale):
        return True
    if top == "ENGLISH" and _only_looks_english(text):
        return False
    return top != expected and top in _FREQUENT and confidence >= sure and found[expected] < _UNLIKELY


def _only_looks_english(text: str) -> bool:
    """Whether a text has English names and loans, but most of its words are not English."""
    found = [word for word in _WORD.findall(text) if word.islower()]
    return has_word_lists() and _share_known(found, "en") <= 1 / 2


def _share_known(found: Sequence[str], language: str) -> float:
    """The share of these words that a dictionary has."""
    return sum(is_known(word, language) for word in found) / (len(found) or 1)


def _has_other_script(text: str, locale: str) -> bool:
    """Whether a text for a language in another script is a sentence in Latin letters."""
    return script_of(locale) != "Latn" and not _NOT_LATIN.search(text) and bool(_SENTENCE.search(text))


def _is_in(text: str, locale: str, min_confidence: float = _LIKELY) -> bool:
    expected, found = language_of(locale).detector_name, detect.confidences(text)
    top = next(iter(found))
    if top == expected or found[expected] >= min_confidence:
        return True
    if top == "ENGLISH" and script_of(locale) == "Latn" and _only_looks_english(text):
        return True
    small, own = [word for word in _WORD.findall(text) if word.islower()], listed(locale)
    if (
        sum(map(str.isalpha, text)) < _SHORT
        and script_of(locale) == "Latn"
        and (
            found[expected] > max(found[name] for name in _FREQUENT - {expected}) / 2
            or (top not in _NOT_BY_MISTAKE and len(small) >= _MIN_WORDS and own and _share_known(small, own) >= _THEIRS)
        )
    ):
        return True
    group = next((group for group in _RELATED if expected in group), frozenset())
    return top in group and (
        found[expected] >= _RELATED_LIKELY
        or expected in {"INDONESIAN", "MALAY"}  # one language in two spellings: short texts are in both
        or (expected == "SERBIAN" and script_of(locale) == "Latn")
    )


def _foreign_part(text: str, locale: str) -> _Foreign | None:
    """The foreign part of a text: all of it, or a sentence that is long enough to tell; never just a few characters."""
    if not _is_in(text, locale):
        return _Foreign(text, 0, _detected(text))
    parts = [(start, part) for start, part in located(blanked(_QUOTATION, text), locale) if part]
    if len(parts) < 2:
        return None
    foreign = []
    for start, spaced in parts:
        part = " ".join(spaced.split())
        is_prose = len(part) >= _MIN_SENTENCE and _PROSE.search(part)
        if _has_other_script(part, locale) or (is_prose and _is_surely_foreign(part, locale)):
            return _Foreign(spaced, start, _detected(part))
        # Names may make a sentence look like one in the expected language.
        bare = " ".join(_NAME.sub(" ", part).split())
        if is_prose and len(bare) >= _MIN_SENTENCE and _is_surely_foreign(bare, locale, _SURE_BARE):
            return _Foreign(spaced, start, _detected(bare))
        telling = sum(not (char.isdigit() or char in "$€£%.,:;#&+/()") for char in part)
        if telling >= _MIN_SENTENCE and not _may_be_in(part, locale):
            foreign.append(_Foreign(spaced, start, _detected(part)))
    if sum(len(each.text) for each in foreign) <= _MAX_FOREIGN * sum(len(part) for _, part in parts):
        return None
    return max(foreign, key=lambda each: len(each.text))


def _detected(text: str) -> str:
    return next(iter(detect.confidences(text))).capitalize()


def _may_be_in(sentence: str, locale: str) -> bool:
    """Whether a sentence may be in a language, judged with or without its names."""
    if _is_in(sentence, locale, _MIN_LIKELY):
        return True
    letters, top = sum(map(str.isalpha, sentence)), next(iter(detect.confidences(sentence)))
    if letters < _SHORT and top not in _NOT_BY_MISTAKE:
        return True
    if letters < _MAY_BE_SELDOM and top in _SELDOM and _NAME.search(sentence):
        return True
    without_names = _NAME.sub(" ", sentence)
    return sum(map(str.isalpha, without_names)) >= _MIN_LETTERS and _is_in(without_names, locale, _MIN_LIKELY)
