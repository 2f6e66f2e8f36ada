"""Finds phrases in a text, verbatim or with the last word inflected."""

from __future__ import annotations

import re
import unicodedata

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufe0f]")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "‐": "-", "‑": "-", "–": "-", "—": "-"})
_BORDERED = re.compile(  # a letter or digit of a script that puts spaces between words
    "[^\\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_MIN_WORD, _MIN_SHORT = 5, 3  # letters of a word whose inflected forms, or only whose plurals, are searched
# By language, plurals and genitives of shorter words: what a word has before its ending, and the ending.
_PLURALS = {
    "en": (("[^sxz]|[^cs]h", "s|'s"), ("[sxz]|[cs]h", "es")), "de": (("", "e|en|es|s"),),
    "fr": (("[^sxz]", "s"), ("eu|au", "x")), "es": (("[aeiouáéó]", "s"), ("[lrndj]", "es")),
    "pt": (("[aeioué]", "s"), ("[rz]", "es")), "nl": (("", "s"),), "sv": (("", "en|et|ar|er|s"),),
    "da": (("", "en|et|er|s"),), "nb": (("", "en|et|er|s"),), "no": (("", "en|et|er|s"),),
}  # fmt: skip
# Words that look like the plural of another word, or mean something else in the plural.
_NO_PLURALS = {
    "en": "arms arts does goods hers his its means news ours this us wales",
    "de": """akte akten arten bande banden falle fallen halle hallen herde herden kosten kurse liste listen marke marken
        note noten posten rate raten reise reisen rinde rinden runde runden tage tagen ware waren winde""",
    "fr": """bois bras cours corps dans fils fois frais gens gros hors lors mais mois nous pays plus sans sens sous
        temps vers vous""",
    "es": "antes menos mientras partes tres",
    "pt": "antes menos",
}

# By language: what a word has before its ending, the ending, and what may stand in its place. Only endings of plurals,
# cases and verbs: those that make another word, as in "Handwerk" and "Handwerker", are left out.
_NORDIC = (("", "", "en|et|ene|a|n|t|s|e"), ("[^k]", "", "er"))
_ENDINGS = {
    "en": (
        ("[^esxzoy]|[aeiou]y", "", "s|ed|ing"),
        ("[sxzo]|[cs]h", "", "es|ed|ing"),
        ("[^aeiou]", "y", "ies|ied|ying"),
        ("", "e", "es|ed|ing"),
    ),
    "de": (
        ("är|isch|ig|lich|bar|los|sam|ell|iv|voll|haft|end|ant|al", "e?", "e[mnrs]?"),
        ("[^e]", "", "e|en|es|s"),
        ("e|el|er", "", "n|s"),
    ),
    "fr": (
        ("[^sxz]", "", "s"),
        ("é|al|ant|ent|ain", "", "es?"),
        ("el", "", "les?"),
        ("[éi]en", "", "nes?"),
        ("", "al", "aux"),
        ("au|eu", "", "x"),
        ("eu", "x", "ses?"),
        ("", "if", "ives?"),
    ),
    "es": (
        ("[aeiouáéó]", "", "s"),
        ("[lrndj]", "", "es"),
        ("", "z", "ces"),
        ("", "ión", "iones"),
        ("os|iv|ari", "o", "as?"),
    ),
    "it": (("", "[oe]", "i"), ("[^cg]", "a", "e"), ("[cg]", "[oa]", "h[ie]")),
    "pt": (("[aeioué]", "", "s"), ("[rz]", "", "es"), ("", "ão", "ões"), ("[aeou]", "l", "is"), ("", "m", "ns")),
    "nl": (("", "", "s|en|e"), ("e", "", "n")),
    "ko": (("", "", "은|는|이|가|을|를|의|에|에서|와|과|로|으로|도|만|적|적인|적으로|들|들이|들은|들을"),),
    "sv": (("", "", "en|et|ar|arna|n|t|s|a|or|orna"),),
    "da": _NORDIC,
    "nb": _NORDIC,
    "no": _NORDIC,
    "ru": (
        ("", "ый|ий|ой", "ого|его|ому|ему|ым|им|ом|ем|ая|яя|ой|ей|ую|юю|ое|ее|ые|ие|ых|их|ыми|ими"),
        ("[бвгджзклмнпрстфхцчшщ]", "", "а|у|ом|ем|е|ы|и|ов|ам|ами|ах"),
        ("", "[ая]", "ы|и|е|у|ю|ой|ей|ам|ям|ами|ями|ах|ях"),
        ("", "[ое]", "а|я|у|ю|ом|ем|ам|ям|ами|ями|ах|ях"),
    ),
    "pl": (
        ("", "[yi]", "a|e|ego|emu|ą|ej|ym|im|ych|ich|ymi|imi"),
        ("[bcdfghjklłmnprstwzżćńś]", "", "u|a|owi|em|ie|y|i|e|ów|om|ami|ach"),
        ("", "a", "y|i|ę|ą|ie|o|om|ami|ach"),
    ),
}  # fmt: skip

_PREFIXES = {"ar": "(?:[وف]?[بكل]?ال|[وف]?لل|[وفبكل])", "he": "[והבלמשכ]{1,3}"}  # written together with a word


def phrase_in(text: str, phrase: str, locale: str = "") -> str | None:
    """The form in which a text has a phrase; None if it lacks the phrase.

    Phrases are found as whole words, in any case and with invisible characters in between; in a script without spaces,
    such as Chinese, anywhere. With a locale, the last word may be inflected by the language's rules; words of three or
    four letters only have plurals. German nouns keep their capital in all forms.
    """
    wanted = _visible(phrase).casefold()
    if not wanted:
        return None
    before = r"(?<!\w)" if _BORDERED.match(wanted[0]) else ""
    after = r"(?!\w)" if _BORDERED.match(wanted[-1]) else ""
    forms, last = [re.escape(wanted)], wanted.rsplit(" ", 1)[-1]
    language = locale.partition("-")[0].lower()
    if language in _PREFIXES:
        forms.append(_PREFIXES[language] + forms[0])
    # The last word may have other endings, if it is long enough not to become another word.
    rules = _ENDINGS.get(language, ()) if len(last) >= _MIN_WORD or language == "ko" else ()
    for preceding, ending, others in rules:
        if match := re.search(f"(?:{preceding})({ending})$", last):
            kept = wanted[: len(wanted) - len(last) + match.start(1)]
            forms.append(f"{re.escape(kept)}(?:{others})")
    if _MIN_SHORT <= len(last) < _MIN_WORD and last.isalpha():
        kept = wanted[: len(wanted) - len(last)]
        not_these = "".join(rf"(?!{word}\b)" for word in _NO_PLURALS.get(language, "").split() if word != last)
        endings = (ending for preceding, ending in _PLURALS.get(language, ()) if re.search(f"(?:{preceding})$", last))
        forms += [f"{re.escape(kept)}{not_these}{re.escape(last)}(?:{ending})" for ending in endings]
    pattern = "|".join(forms).replace(r"\ ", "[ -]").replace(r"\-", "[ -]")  # "cutting-edge" is "cutting edge"
    visible = _visible(text)
    for match in re.finditer(f"{before}(?:{pattern}){after}", visible.casefold()):
        if language != "de" or match[0] == wanted or _may_be_form(match[0], phrase, visible):
            return match[0]
    return None


def _may_be_form(found: str, phrase: str, text: str) -> bool:
    """Whether a German form in a text has a capital if the phrase ends in a noun: "Feste" for "Fest", not "feste".

    A short word that begins a sentence can be another word, as in "Arme Familien", and does not count.
    """
    last = phrase.rsplit(maxsplit=1)[-1]
    if not last[0].isupper():
        return len(last) >= _MIN_WORD
    form = found.rsplit(" ", 1)[-1].rsplit("-", 1)[-1]
    spelled = re.escape(form[0].upper() + form[1:]).replace("ss", "(?:ss|ß)")
    within = "" if len(last) >= _MIN_WORD else r"(?<=[^\W_][ -]|[,;] )"
    return bool(re.search(rf"{within}(?<!\w){spelled}(?!\w)", text))


def contradicts(wanted: str, avoided: str, locale: str = "") -> bool:
    """Whether every text that has the wanted phrase also has the avoided one, with either inflected.

    Without a locale, words are compared as they are.
    """
    parts, size = wanted.split(), len(avoided.split())
    runs = (" ".join(parts[start : start + size]) for start in range(len(parts) - size + 1))
    within = f", {wanted}"  # within a sentence, not at its beginning
    return bool(phrase_in(within, avoided, locale) or any(phrase_in(avoided, run, locale) for run in runs))


def _visible(text: str) -> str:
    return " ".join(_INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).translate(_QUOTES).split())
