"""Slips that a proofreader strikes: a word written twice, a space before a comma, a text in capitals."""

from __future__ import annotations

import re

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.segments import located

# Words that never follow themselves; others may ("had had", "vous vous", "die die").
_NEVER_TWICE = {
    "en": "the|a|an|of|to|and|is|are|was|were|for|with|at|by|from|this|its|their|or|be|in|as|but|which|i|we|they|he",
    "de": "und|zu|ist|von|mit|ein|eine|einen|im|den|dem|auf|für|nicht|oder|sich|wir|hat|wird|sind|auch|aber|bei|aus",
    "fr": "le|la|les|de|des|du|et|un|une|dans|pour|sur|est|au|aux|avec|par|il|elle|que|qui|ne|se|ce",
    "es": "el|la|los|las|de|y|en|un|una|que|con|por|para|del|al|se|su|como",
    "it": "il|la|lo|gli|di|e|un|una|in|per|con|del|della|che|da|come",
    "pt": "os|as|de|e|um|uma|em|para|com|do|da|no|na|que|se",
    "nl": "de|het|een|van|en|in|met|voor|op|te|niet|naar|bij|maar",
    "sv": "och|att|en|ett|på|av|för|med|till|som|i|är",
    "da": "og|at|en|et|på|af|for|med|til|er|som|i",
    "nb": "og|at|en|et|på|av|for|med|til|er|som|i",
    "no": "og|at|en|et|på|av|for|med|til|er|som|i",
    "fi": "ja|on|ei|että|myös",
    "pl": "i|w|z|na|do|się|nie|jest|od|o|po",
    "cs": "a|v|na|se|z|do|že|je|s|i|o",
    "ro": "și|de|la|în|cu|pe|un|o|să",
    "hu": "és|a|az|hogy|nem|egy",
    "tr": "ve|için|ile|da|de",
    "el": "και|το|να|του|την|με|για|από|στο|στη",
    "ru": "и|в|на|с|не|к|для|из|по|что|от|за|у|а|но",
    "uk": "і|в|на|з|не|до|для|та|що|у|від",
}
_BEFORE_MARK = re.compile(r"[\w\"”»)\]](?: +[,.](?=\s|$)(?<! \.\.)| +[、。，])")
_BEFORE_OTHER_MARK = re.compile(r"[\w\"”»)\]] +[;?!](?=\s|$)")
_WORD = re.compile(r"[^\W\d_]{2,}")
_MIN_WORDS_OF_SENTENCE = 6
_MIN_WORDS, _MIN_LETTERS = 4, 20  # of a text in capitals: shorter ones may be abbreviations
_MAX_CAPITALS = 0.7  # of the letters


def slip(text: str, locale: str) -> Rejection | None:
    """Reject a word that is written twice, a space before a comma or full stop, and a text in capitals."""
    language = primary(locale)
    if never := _NEVER_TWICE.get(language):
        twice = re.search(rf"(?<![\w'’-])({never})\s+\1(?![\w'’-])", text, re.IGNORECASE)
        if twice and (not twice[0].isupper() or twice[1] == "I"):
            return _slip(f"has a word twice: {twice[0]!r}", twice.span())
    space = _BEFORE_MARK.search(text) or (language != "fr" and _BEFORE_OTHER_MARK.search(text))
    if space:
        return _slip("has a space before a mark", (space.start() + 1, space.end()))
    if _shouts(text, _MIN_WORDS, _MAX_CAPITALS):
        return _slip("is written in capitals", (0, len(text)))
    for start, sentence in located(text, locale):
        if _shouts(sentence, _MIN_WORDS_OF_SENTENCE, 0.9):
            return _slip("has a sentence in capitals", (start, start + len(sentence)))
    return None


def _shouts(text: str, min_words: int, max_capitals: float) -> bool:
    """Whether most letters are capitals, other than in a list of abbreviations."""
    found = _WORD.findall(text)
    letters = [char for word in found for char in word if char.upper() != char.lower()]
    long_enough = len(found) >= min_words and len(letters) >= max(_MIN_LETTERS, sum(map(len, found)) / 2)
    is_list = text.count(",") >= len(found) - 1
    return long_enough and not is_list and sum(map(str.isupper, letters)) > max_capitals * len(letters)


def _slip(detail: str, span: tuple[int, int]) -> Rejection:
    return Rejection(RejectionReason.TYPOGRAPHY, detail, span)
