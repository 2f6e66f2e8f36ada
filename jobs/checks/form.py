"""Form: a text that stops in mid-sentence, and marks that open or close nothing."""

from __future__ import annotations

import re

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.segments import words
from thothy_ai.jobs.checks.tables import table

_UNENDING = frozenset({"th", "lo", "km", "my"})  # languages without full stops
# Languages whose posts and headlines may omit the full stop, and how a sentence ends in them if it was cut off.
_OFTEN_UNENDING = {
    "ja": re.compile(r"(?:[っゃゅょァィゥェォッャュョをにがはのでとへやもてし、，ー・]|から|まで|より|けど|ので)$"),
    "zh": re.compile(r"[的和与與在是把被将將对對从從为為向、，：及或而但]$"),
    "ko": re.compile(r"(?:[고는은을를이가의에와과며서도로만,]|하여|하지만|그리고)$"),
}
# What may follow the end of the last sentence: hashtags, mentions, links, footnotes, emoji.
_MIN_UNENDING = 6  # characters
_END_CHARS = 300  # at the end of a text that are searched for what follows its last sentence
_EMOJI = "\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\ufe0f\u20e3\u200d\U0001f000-\U0001faff"
_APPENDIX = re.compile(
    rf"(?:\s*(?:[#＃@][^\s#＃@.!?。]{{1,60}}|https?://\S+|\[\^?\w{{1,12}}\]|\([^()\n]{{0,20}}@\w{{1,40}}\)|[{_EMOJI}]))+\s*$"
)
# A link, a mention, a percentage or an emoji is no place where an output is cut off: a post may end so, with a colon or
# nothing before it.
_DOMAIN = r"(?<!\S)[\w-]+\.(?:[\w-]+\.)*"
_TOP = "com|org|net|info|news|app|dev|io|eu|at|be|br|ch|cz|de|dk|es|fi|fr|in|it|jp|nl|no|pl|pt|ro|ru|se|tr|ua|uk"
_DELIBERATE_END = re.compile(
    rf"(?:https?://|(?<!\S)www\.|{_DOMAIN}[a-z]{{2,}}[/?])\S*$|{_DOMAIN}(?:{_TOP})$|\[[^\W\d_]{{3,20}}\]$|(?<!\S)@\w{{1,40}}$"
    rf"|\d\s?[%％]$|[{_EMOJI}]$"
)
# Nor is, in a post, a name behind a label of a few words: "Now open: Antwerp". Not behind one that a sentence follows,
# nor if a word of the name begins or ends no name; and not in German, in which every noun looks like a name.
_LABELLED = re.compile(r"(?:^|[.!?…]\s+|\n)((?:[\w'’-]+ ){0,3}[\w'’-]+) ?: ((?:[^\W\d_a-zß-ÿа-я][\w'’-]* ?){1,3})$")
_BEFORE_SENTENCES = frozenset(
    """advice because conclusion effect fact goal idea lesson matters message point problem question reason result
    takeaway trend upshot verdict but more why bilan constat effet leçon objectif problème raison résultat tendance
    objetivo problema pregunta razón resultado tendencia motivo risultato ragione obiettivo razão reden resultaat doel
    probleem vraag""".split()  # noqa: SIM905  a list to read
)
_IN_NO_NAME = frozenset(
    """a an the and or but if in on at of for from by with to as is are was when what who why how it its this that these
    those he she they we you i his her their our your many most more some few people there here do does not no yes so
    than because le la les un une des du de et ou si dans sur ce cette ces il elle ils elles nous vous on qui que quand
    comment pourquoi pas el los las una y o en con por para su sus al del lo gli e che per non het een of voor met zijn
    die dat wij""".split()  # noqa: SIM905  as above
)
_CLOSING = "\"'”’“‘»«›‹)]}）」』】》〉＂*_~ \n\t\u200f\u200e"
_ENDINGS = tuple(".!?…。！？．｡।॥؟۔։።‽¿׃~♪|")
_GREEK_ENDINGS = (*_ENDINGS, ";")
_ABBREVIATED = re.compile(
    r"(?:^|\s)(?:Dr|Mrs?|Ms|Prof|Nr|vs|e\.g|i\.e|approx|z\. ?B|bzw|d\. ?h|p\. ?ej|por ej|например|т\. ?е)\.$",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"\s*(?:[-*+•] |\d{1,3}[.)] |#{1,6} |\||>|```|~~~|    )")
_DOUBLE = re.compile(
    r"(?<!\d)(?<![\u0590-\u05ff](?=\"[\u0590-\u05ff]))[\"“”„‟«»＂「」『』]|(?<=\d)[“”„«»「」『』](?!\w)"
)
_UNFINISHED_LAST_WORDS = {
    "en": {"the", "a", "an", "and", "or", "their", "our", "your", "its", "than", "because", "whose"},
    "de": {"der", "des", "dem", "und", "oder", "eine", "einer", "eines", "einem", "zum", "zur", "im", "weil", "sowie"},
    "fr": {"le", "les", "un", "des", "du", "et", "ou", "que", "de", "au", "aux", "leur", "leurs"},
    "es": {"el", "los", "las", "un", "y", "o", "de", "del", "que", "al", "sus", "con"},
    "it": {"il", "lo", "gli", "e", "o", "di", "del", "della", "che", "al", "alla", "con"},
    "pt": {"o", "os", "as", "e", "ou", "de", "do", "da", "que", "ao", "com"},
    "nl": {"de", "het", "een", "en", "of", "zijn", "hun", "omdat"},
}


def unfinished(field: str, text: str, locale: str, *, is_post: bool = False) -> Rejection | None:
    """Reject a text that stops in mid-sentence, or has a quotation or bracket that is only opened or only closed.

    The last line may be a list item, a heading, a table row or code; in a post, also a label with a name.
    Thai and its neighbours write no full stop, and pass.
    """
    bare = text[:-_END_CHARS] + _APPENDIX.sub("", text[-_END_CHARS:])
    language = locale.partition("-")[0]
    end = text[-_END_CHARS:].rstrip()
    deliberate = _DELIBERATE_END.search(end) or (is_post and _ends_in_name(end, language))
    ends = deliberate or _ends(bare, language) or _ends(text, language) or language in _UNENDING
    # Some words cannot end a sentence, even before a full stop: the token budget was used up.
    known = _UNFINISHED_LAST_WORDS.get(language)
    last = words(bare[-40:], language)[-1:] if known and bare.rstrip(_CLOSING).endswith(".") else []
    before = bare.rstrip(_CLOSING + ".")[-12:]
    cut = known and last and last[0] in known and before.endswith(tuple(known)) and before[-1:].islower()
    if not ends or cut:
        return Rejection(RejectionReason.TRUNCATED, f"{field} stops in mid-sentence: …{text[-30:]!r}")
    if "\n" not in text and len(_DOUBLE.findall(text)) % 2:
        return Rejection(RejectionReason.TRUNCATED, f"{field} has a quotation mark without its counterpart")
    if len(re.findall(r"(?<![:;])[(（]", text)) > len(re.findall("[)）]", text)):
        return Rejection(RejectionReason.TRUNCATED, f"{field} has a bracket that is not closed")
    return None


def _ends_in_name(text: str, language: str) -> bool:
    """Whether a post ends with a label and a name."""
    if language == "de" or not (match := _LABELLED.search(text)):
        return False
    label, name = (part.casefold().split() for part in match.groups())
    said = table("speech")["verbs"].get(language)
    leads = not _BEFORE_SENTENCES.isdisjoint(label) or (said and re.fullmatch(said, label[-1]))
    return not leads and label[-1] not in _IN_NO_NAME and _IN_NO_NAME.isdisjoint((name[0], name[-1]))


def _ends(text: str, language: str) -> bool:
    last_line = text.rstrip().rpartition("\n")[2]
    if _BLOCK.match(last_line):
        return True
    bare = text.rstrip(_CLOSING)
    if language in _OFTEN_UNENDING and len(bare) >= _MIN_UNENDING and bare[-1].isalnum():
        return not _OFTEN_UNENDING[language].search(bare)
    return bare.endswith(_GREEK_ENDINGS if language == "el" else _ENDINGS) and not _ABBREVIATED.search(bare)
