"""A backlog of synthetic jobs in any number, for benchmarks: the usual mix of kinds, or one kind alone.

Sources are the demo's sentences in a different order, with invented names and figures, so that no two jobs share a
beginning. A third of the translations are from other languages into English. The same seed gives the same jobs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from thothy_ai.demo.sources import load_sources
from thothy_ai.jobs import Hook, ReportSection, Request, Translation, TrendSummary, registry
from thothy_ai.jobs.channels import Channel
from thothy_ai.jobs.problems import first_problem

SHARES = {"trend_summary": 30, "hook": 35, "translation": 25, "report_section": 10}  # of a hundred jobs
_AUDIENCES = ("indie founders", "city planners", "newsletter readers", "a general audience")
_TONES = ("curious", "playful", "urgent", "dry")
_CHANNELS: tuple[Channel, ...] = ("newsletter", "social post", "video", "podcast", "landing page")
_TARGETS = ("de", "fr", "es", "it", "pl", "ja")
_NAMES = (
    "Arden",
    "Brevik",
    "Calder",
    "Dunmore",
    "Esk",
    "Farrow",
    "Gillan",
    "Halden",
    "Inver",
    "Kolby",
    "Lorne",
    "Mossel",
)
_FOREIGN = {
    "de": (
        "In den letzten drei Jahren hat sich die Zahl der Werkstätten verdoppelt, obwohl die Mieten gestiegen sind.",
        "„Wir reparieren, was andere wegwerfen“, sagt die Gründerin, die früher Maschinenbau studiert hat.",
        "Die Stadt fördert das Projekt mit 40.000 Euro im Jahr und stellt die Räume kostenlos zur Verfügung.",
        "Kritiker halten die Wirkung für gering, denn die meisten Geräte lassen sich kaum noch öffnen.",
    ),
    "fr": (
        "Le marché du quartier ouvre désormais le soir, et les habitants y viennent après le travail.",
        "Selon la mairie, la fréquentation a augmenté d'un quart depuis l'été dernier.",
        "Les commerçants, d'abord sceptiques, demandent à présent que l'expérience soit prolongée jusqu'en juin.",
        "Reste la question du bruit, qui divise les riverains plus que prévu.",
    ),
    "es": (
        "Los vecinos han plantado más de mil árboles en los patios de las escuelas durante el último otoño.",
        "«El calor ya no deja jugar a los niños al mediodía», explica una maestra que coordina el proyecto.",
        "El ayuntamiento calcula que la temperatura baja hasta cuatro grados a la sombra de los árboles jóvenes.",
        "Todavía falta dinero para regarlos en los meses más secos del año.",
    ),
    "pl": (
        "Nocne pociągi wracają na tory, choć przewoźnicy wciąż skarżą się na brak wagonów sypialnych.",
        "Bilety na weekendy są wyprzedane z dwumiesięcznym wyprzedzeniem, mówi rzecznik spółki.",
        "Podróż trwa jedenaście godzin, ale pasażerowie oszczędzają na hotelu i nie tracą dnia.",
        "Ministerstwo zapowiada nowe połączenia od przyszłego roku.",
    ),
    "ja": (
        "この町では、使われなくなった銭湯を図書館に改装する計画が進んでいる。",
        "週末には遠くからも家族連れが訪れ、一日の来館者は三百人を超えた。",
        "「本を読みながら足湯に入れるのがいい」と、近くに住む会社員は話す。",
        "維持費をどう賄うかは、まだ決まっていない。",
    ),
}


def backlog(jobs: int, seed: int = 0, kind: str | None = None) -> list[Request]:
    """Jobs in no particular order. Raises `KindError` if the kind is unknown or its fields cannot be made up."""
    draw = random.Random(seed)
    if kind is not None:
        names = [kind] * jobs
    else:  # exactly the shares, up to rounding
        cycle = [name for name, share in SHARES.items() for _ in range(share)]
        names = draw.sample(cycle, len(cycle)) * (jobs // len(cycle))
        names += draw.sample(cycle, len(cycle))[: jobs % len(cycle)]
        draw.shuffle(names)
    return [_MAKERS[name](draw) if name in _MAKERS else _of_any_kind(name, draw) for name in names]


def house_prompt(words: int) -> str:
    """Instructions of this many words, the same on every call."""
    draw = random.Random("house")
    return f"House style. {_prose(draw, words)}" if words else ""


def _translation(draw: random.Random) -> Translation:
    """A passage of a longer text into another language, or a short text in another language into English."""
    if draw.random() < 1 / 3:
        language = draw.choice(tuple(_FOREIGN))
        first = f"{draw.choice(_NAMES)} {draw.randint(1_000, 99_999)}."
        text = " ".join((first, *draw.choices(_FOREIGN[language], k=draw.randint(8, 14))))
        return Translation(source=text, source_locale=language, target_locale="en")
    source = _source(draw, 260, 560)
    words = source.split(" ")
    length = draw.randint(100, 220)
    begin = draw.randrange(len(words) - length)
    return Translation(
        source=source,
        source_locale="en",
        passage=" ".join(words[begin : begin + length]),
        target_locale=draw.choice(_TARGETS),
    )


def _of_any_kind(name: str, draw: random.Random) -> Request:
    """A request of a user's kind: `source` gets a text of 60 to 2,200 words, other required strings short phrases."""
    request = registry.find(name).request
    values: dict[str, Any] = {"source": _source(draw, 60, 2_200)} if "source" in request.model_fields else {}
    for field, described in request.model_fields.items():
        if described.is_required() and field not in values:
            values[field] = _prose(draw, 6)
    try:
        made: Request = request.model_validate(values)
    except ValidationError as error:
        field, problem = first_problem(error)
        raise registry.KindError(f"a request of kind {name!r} cannot be made up: {field}: {problem}") from error
    return made


def _locale(draw: random.Random) -> str:
    return draw.choice(("en", "en", "en", "de", "fr"))


def _source(draw: random.Random, shortest: int, longest: int) -> str:
    """A text of about `shortest` to `longest` words with a unique first sentence."""
    place, people, year = draw.choice(_NAMES), draw.randint(1_000, 99_999), draw.randint(1990, 2026)
    return f"{place}, {year}: a survey of {people:,} people. {_prose(draw, draw.randint(shortest, longest) - 9)}"


def _prose(draw: random.Random, words: int) -> str:
    """Sentences in random order, cut after this many words."""
    found: list[str] = []
    while len(found) < words:
        found += draw.choice(_SENTENCES).split(" ")
    return " ".join(found[:words])


_SENTENCES = tuple(
    f"{part.strip()}."
    for source in load_sources()
    for paragraph in source.paragraphs
    for part in paragraph.rstrip(".").split(". ")
)
_MAKERS: dict[str, Callable[[random.Random], Request]] = {
    "trend_summary": lambda draw: TrendSummary(
        source=_source(draw, 200, 1_400), audience=draw.choice(_AUDIENCES), locale=_locale(draw)
    ),
    "hook": lambda draw: Hook(
        source=_source(draw, 60, 500),
        audience=draw.choice(_AUDIENCES),
        channel=draw.choice(_CHANNELS),
        tone=draw.choice(_TONES),
    ),
    "translation": _translation,
    "report_section": lambda draw: ReportSection(
        source=_source(draw, 800, 2_200), audience=draw.choice(_AUDIENCES), locale=_locale(draw)
    ),
}
