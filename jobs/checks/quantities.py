"""Numbers in a text, in digits and in words, with everything that each of them may mean.

"1.200" is 1200 or 1.2, "21.2万" is 212,000, "3 to 5 million" is two numbers, "3.5.2024" three. An uncertain reading is
added to the others: checks compare sets of readings.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise

from thothy_ai.jobs.checks import numerals
from thothy_ai.jobs.checks.spellout import in_digits
from thothy_ai.jobs.text.strings import blanked

_GROUP = ",.'’ \u00a0\u202f\u2009٬"
_DIGITS = re.compile(
    rf"(?<![\dA-Za-z\u00c0-\u052f])(?:(?P<date>\d{{1,4}}(?P<dot>[./-])\d{{1,2}}(?P=dot)\d{{2,4}}(?!\d))"
    r"|(?P<time>\d{1,2}[:：]\d{2}(?::\d{2})?(?!\d))"
    rf"|(?P<number>\d{{1,3}}(?P<sep>[{_GROUP}])\d{{3}}(?:(?P=sep)\d{{3}})*(?:[.,٫]\d+)?(?!\d)"
    r"|\d{1,2}(?:,\d{2}){1,9},\d{3}(?:\.\d+)?(?!\d)|\d+(?:[.,٫]\d+)*))"
)
_NUMERAL = f"[{numerals.CJK_UNITS}{numerals.CJK_DIGITS}]"
_CJK = re.compile(
    rf"(?:百分之|百分の)?(?:(?<![\d,.])\d[\d,.]{{0,20}} ?)?{_NUMERAL}"
    rf"(?:[\d,.]{{0,20}}{_NUMERAL}| (?=\d[\d,.]{{0,20}}[십백천만억])){{0,40}}(?:\d[\d,]{{0,20}})?"
)
_NOISE = re.compile(
    r"https?://\S+|\b[\w-]{1,40}(?:\.[a-z][\w-]{1,20}){1,4}[/:]\S*|\[\^?\d{1,3}\]|(?<![\w.+-])[\w.+-]{1,64}@[\w.-]+"
)
_NAMES = re.compile(r"\b[A-Z][A-Za-z]{0,20}-\d{1,3}\b|\b\d{1,3}[A-JL-Z]\b")  # COVID-19, 5G
_BOUND = re.compile(r"(?<=[A-Za-z])\d[\d.,]*")
_LISTED = re.compile(r"^\s{0,6}\d{1,3}[.)](?=\s)|^#{1,6} \d{1,3}[.)]?(?=\s)", re.MULTILINE)
_FRACTION = re.compile(r"(?<!\d)\d{1,2}\s?(?:분의|分の|分之|⁄|/)\s?\d{1,2}(?![\d/])")
_RANGE = re.compile(
    r"\s?(?:-|–|—|−|~|〜|～|/|to|and|or|bis|auf|und|oder|à|et|ou|a|e|y|o|para|naar|en|på|до|на|и|или|та|і|至|到|或|から|より"
    r"|降至|升至|增至|减至|降到|升到|增加到|减少到|tot|til|till|do|na|ila|ve|și|la|έως|σε|إلى|الى|حتى|و|עד|تا|से|에서|부터|hingga"
    r"|sampai|đến|ถึง)?\s?",
    re.IGNORECASE,
)
_TENTH = re.compile(r"\s?[成割할](?![立功长長])")
_CLOCK = re.compile(r"([01]?\d|2[0-4])\.([0-5]\d)$")
_HALF_DAY = 12  # hours
_HANGUL_GROUP = re.compile("[만억조천]$")
_AFTERNOON = re.compile(r"(?:[:.]\d\d)?\s?(?:pm\b|p\.\s?m|PM\b)")
_HOUR = re.compile(r"\s?(?:Uhr|h\b|時|点|點|时|시|uur|час|heures?|horas)")
_MAX_DIGITS = 20
# Languages that write 1.5; all others write 1,5, or write one here and the other there.
_DECIMAL_POINT = frozenset(
    (
        *("en", "zh", "ja", "ko", "th", "he", "hi", "bn", "ta", "te", "mr", "gu", "pa", "ur", "ms", "tl", "cy", "ga"),
        *("sw", "yo"),
    )
)
_BESIDE = 48  # characters before and after a number that tell what it counts
_FRACTIONS = {"½": "5", "¼": "25", "¾": "75", "⅓": "33", "⅔": "67", "⅕": "2", "⅛": "125"}
_VULGAR = re.compile(rf"(\d{{1,12}})?\s?([{''.join(_FRACTIONS)}])")
_UNSEEN = re.compile("[\xad\u0640\u064b-\u0652]")  # soft hyphens, and marks that Arabic may do without
_HALF = Decimal("0.5")
_EITHER = frozenset({"es", "ar", "fa", ""})


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in a text. `parts` are the numbers that it may be instead, such as the two of "3 418".

    A `spelled` number is in words; a `scaled` one has a scale word; a `year` may not be rounded; an `optional` one can
    be written differently in a translation, such as a month by its name. `before` and `after` are the text beside it.
    """

    text: str
    start: int
    end: int
    readings: frozenset[Decimal]
    parts: tuple[Decimal, ...] = ()
    spelled: bool = False
    scaled: bool = False
    year: bool = False
    optional: bool = False
    before: str = ""
    after: str = ""


def quantities(text: str, language: str, *, listed: bool = True) -> list[Quantity]:
    """The numbers of a text in a language (a BCP 47 primary subtag), in their order; those in words come last.

    With `listed`, the result includes the numbers of lists and headings, since "3. Mai" cannot be told from the third
    item, and the numbers in fractions such as "1/3" and names such as "COVID-19".
    """
    return list(_quantities(text, language, listed))


@lru_cache(maxsize=16)  # a text is compared in several ways
def _quantities(text: str, language: str, listed: bool) -> tuple[Quantity, ...]:
    plain = blanked(_NOISE, prepared(text))
    plain = plain if listed else blanked(_NAMES, blanked(_FRACTION, blanked(_LISTED, plain)))
    found = sorted(_in_digits(plain, language), key=lambda each: each.start)
    ends = [0, *(each.end for each in found)]
    starts = [*(each.start for each in found), len(plain)]
    rest = "#".join(plain[end:start] for end, start in zip(ends, starts, strict=True))
    words, in_words = in_digits(rest, language), []
    for match in re.finditer(r"(?<!\w)\d+(?:[.,]\d+)?", words):
        readings = frozenset(_readings(match[0], "en")[0])
        if "." in match[0]:  # a part or more of a scale word that was read as a number: 1.5 of 1000000
            readings |= {each * _written_scale(words[match.end() :]) for each in readings}
        bare = Quantity(match[0], match.start(), match.end(), readings, spelled=True)
        in_words.append(_and_a_half(_multiplied(bare, words, language), words, language))
    return (*_placed(_with_shared_scale(found, plain), plain), *_placed(_with_shared_scale(in_words, words), words))


@lru_cache(maxsize=64)  # a text is compared in several ways
def prepared(text: str) -> str:
    """The form of a text in which numbers are read: composed characters, ASCII digits, 3½ as 3.5. Positions refer to
    this form.
    """
    plain = _UNSEEN.sub("", unicodedata.normalize("NFC", text))
    if not plain.isascii():
        plain = "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in plain)
    return _VULGAR.sub(lambda match: f"{match[1] or '0'}.{_FRACTIONS[match[2]]}", plain)


def _placed(found: Iterable[Quantity], text: str) -> list[Quantity]:
    return [
        replace(each, before=text[max(0, each.start - _BESIDE) : each.start], after=text[each.end : each.end + _BESIDE])
        for each in found
    ]


def span_of(quantity: Quantity, text: str) -> tuple[int, int] | None:
    """The span of a number in the original text, whose positions can differ from the prepared text's."""
    places = [match.start() for match in re.finditer(re.escape(quantity.text), text)]
    start = min(places, key=lambda place: abs(place - quantity.start), default=None)
    return None if start is None else (start, start + len(quantity.text))


def bound(text: str) -> set[Decimal]:
    """Numbers directly after letters, such as "Rs1,200" and "G20", which `quantities` takes for names."""
    digits = (match[0].rstrip(".,") for match in _BOUND.finditer(prepared(text)))
    return {reading for number in digits for reading in _readings(number, "")[0]}


def _in_digits(text: str, language: str) -> Iterator[Quantity]:
    covered: set[int] = set()
    for match in _CJK.finditer(text):
        numeral = match[0].removeprefix("百分之").removeprefix("百分の").rstrip(" ,.")
        value = numerals.cjk_value(numeral) if not numeral.replace(",", "").isdigit() else None
        if value is None or not re.search(rf"[\d{numerals.CJK_DIGITS}]", numeral):
            continue
        readings = {value, value * 10} if _TENTH.match(text, match.end()) else {value}
        start = match.start() + match[0].index(numeral)
        spelled = not any(map(str.isdigit, re.sub(rf"[{numerals.CJK_DIGITS}]", "", numeral)))
        end, scaled = start + len(numeral), value >= 10_000
        bare = Quantity(numeral, start, end, frozenset(readings), spelled=spelled, scaled=scaled)
        quantity = _and_a_half(bare, text, language)
        covered |= set(range(quantity.start, quantity.end))
        yield quantity
    for match in _DIGITS.finditer(text):
        if match.start() in covered:
            continue
        if match["date"] or match["time"]:
            yield from _date_or_time(match)
        else:
            yield _number(match, text, language)


def _number(match: re.Match[str], text: str, language: str) -> Quantity:
    readings, parts = _readings(match["number"], language)
    if clock := _CLOCK.match(match["number"]):
        parts = (Decimal(clock[1]), Decimal(clock[2]))
    if _AFTERNOON.match(text, match.end()) and readings and max(readings) <= _HALF_DAY:
        readings |= {reading + _HALF_DAY for reading in readings}
    elif _HOUR.match(text, match.end()) and max(readings) > _HALF_DAY:
        readings |= {reading - _HALF_DAY for reading in readings}
    year = match["number"].isdigit() and len(match["number"]) == 4 and "15" <= match["number"][:2] <= "21"
    quantity = Quantity(match["number"], match.start(), match.end(), frozenset(readings), parts, year=year)
    return _and_a_half(_multiplied(quantity, text, language), text, language)


def _date_or_time(match: re.Match[str]) -> Iterator[Quantity]:
    numbers = [int(part) for part in re.findall(r"\d+", match[0])]
    for position, number in enumerate(numbers):
        readings = {Decimal(number)}
        if match["date"] and position == 2 and number < 100:
            readings.add(Decimal(2000 + number))
        if match["time"] and position == 0:
            readings |= {Decimal(number + 12), Decimal(abs(number - 12))}
        optional = number <= 12 or (bool(match["time"]) and number == 0)
        yield Quantity(match[0], match.start(), match.end(), frozenset(readings), year=True, optional=optional)


def _readings(number: str, language: str) -> tuple[set[Decimal], tuple[Decimal, ...]]:
    """The possible values of digits with separators, and their parts if they are several numbers."""
    separators = re.findall(r"\D", number)
    groups = re.split(r"\D", number)
    joined = _decimal("".join(groups))
    if not separators:
        return {joined}, ()
    numbers = tuple(map(_decimal, groups))
    if len(separators) == 1 and separators[0] in ".,٫":
        decimal = _decimal(".".join(groups))
        if len(groups[1]) > 3 and groups[1].endswith("00"):
            return {joined}, ()  # no decimals have so many zeros: 60.0000 is a misprint of 600.000
        if len(groups[1]) != 3 or len(groups[0]) > 3 or groups[0] == "0":
            joined = decimal  # the separator does not separate thousands
        groups_only = "," if language in _DECIMAL_POINT else "." if language not in _EITHER else ""
        return ({joined} if separators[0] == groups_only else {joined, decimal}), ()
    if len(set(separators)) == 1 and separators[0] in ".,٫":
        return {joined}, numbers
    parts = numbers if " " in separators else ()
    if separators[-1] in ".,٫" and (len(set(separators)) > 1):
        return {_decimal("".join(groups[:-1]) + "." + groups[-1])}, parts
    return {joined}, parts


def _decimal(digits: str) -> Decimal:
    return Decimal(digits[:_MAX_DIGITS] or "0").normalize() if digits.strip(".") else Decimal(0)


def _multiplied(quantity: Quantity, text: str, language: str) -> Quantity:
    """The number times the scale words behind it, such as "mil millones"; an ambiguous one is one more reading."""
    end, factor, ambiguous = quantity.end, Decimal(1), False
    pattern = numerals.scale_pattern(language)
    while match := pattern.match(text, end):
        word = match[0].strip(" -\u00a0").casefold()
        factor *= Decimal(10) ** int(str(match.lastgroup)[1:])
        ambiguous = ambiguous or word in numerals.AMBIGUOUS_SCALES
        end = match.end()
    if factor == 1:
        tenth = _TENTH.match(text, end)
        tens = quantity.readings | {10 * each for each in quantity.readings}
        return replace(quantity, end=tenth.end(), readings=tens) if tenth else quantity
    readings = {each * factor for each in quantity.readings} | (quantity.readings if ambiguous else set())
    return replace(
        quantity, text=text[quantity.start : end], end=end, readings=frozenset(readings), scaled=True, year=False
    )


def _and_a_half(quantity: Quantity, text: str, language: str) -> Quantity:
    """With "and a half" behind it or behind its unit, the number has a second reading: 2 hours and a half, 2시간 반."""
    half = numerals.half_pattern().match(text, quantity.end)
    if half is None:
        return quantity
    scale = numerals.scale_pattern(language).match(text, half.end())
    factor = Decimal(10) ** int(str(scale.lastgroup)[1:]) if scale else _written_scale(text[half.end() :])
    value = max(quantity.readings)
    powers = (Decimal(10) ** power for power in (12, 9, 6, 3))
    whole = quantity.scaled or quantity.spelled
    # Half of the power of a thousand that a number in words ends with: of 2000000, a million.
    step = _HALF * next((power for power in powers if whole and value >= power and not value % power), Decimal(1))
    return replace(quantity, readings=quantity.readings | {(each + step) * factor for each in quantity.readings})


def _written_scale(text: str) -> Decimal:
    """The scale of a number that was a word, such as "million", before it became 1000000."""
    match = re.match(r"\s?(1(?:000){1,4})(?!\d)", text)
    return Decimal(match[1]) if match else Decimal(1)


def _with_shared_scale(found: list[Quantity], text: str) -> list[Quantity]:
    """In "3 to 5 million", the first number has the scale of the second, too; in "2019/20", the second is 2020."""
    shared = list(found)
    for position, (one, other) in reversed(list(enumerate(pairwise(found)))):
        if other.start - one.end > 6 or not _RANGE.fullmatch(text[one.end : other.start]):
            continue
        second = shared[position + 1]
        # Two numbers without a word between may be one, such as "4만 7,100" and "two thousand five hundred".
        falls = one.scaled and not second.year and max(one.readings) > max(second.readings)
        goes_on = second.scaled or _HANGUL_GROUP.search(one.text) or (one.spelled and max(second.readings) < 1000)
        if falls and goes_on and not text[one.end : other.start].strip():
            total = frozenset(first + rest for first in one.readings for rest in second.readings)
            shared[position], shared[position + 1] = (
                replace(each, readings=each.readings | total) for each in (one, second)
            )
            continue
        if second.scaled and not one.scaled:
            digits = re.match(r"[\d.,]+", second.text)  # without its scale
            bare = digits[0].rstrip(".,") if digits else ""
            unscaled = _readings(bare, "")[0] if bare else set()
            factors = {each / plain for each in second.readings for plain in unscaled if plain}
            shared[position] = replace(
                one, readings=one.readings | {each * factor for each in one.readings for factor in factors}
            )
        elif one.year and len(other.text) == 2 and other.text.isdigit():
            year = Decimal(one.text[:2] + other.text) if one.text.isdigit() else Decimal(0)
            shared[position + 1] = replace(second, readings=second.readings | {year})
    return shared
