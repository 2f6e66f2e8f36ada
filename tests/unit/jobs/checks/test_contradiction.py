"""Reversed negations, directions and units, and good texts with negations and changes."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks

ENGLISH = (
    "Sales of cargo bikes in Freiburg rose by 12 percent last year. The city does not plan to subsidize cargo "
    "bikes this summer. Rents for garages near the station fell to 40 euros. A battery lasts 18 months and costs "
    "$500. Families with children buy most of the cargo bikes."
)
CONTRADICTIONS = [
    ("Sales of cargo bikes in Freiburg fell by 12 percent last year.", "en", ENGLISH),
    ("Rents for garages near the station rose to 40 euros.", "en", ENGLISH),
    ("The city plans to subsidize cargo bikes this summer.", "en", ENGLISH),
    ("A battery lasts 18 years.", "en", ENGLISH),
    ("It costs €500.", "en", ENGLISH),
    ("Die Preise sind gesunken.", "de", "Prices rose sharply in the last quarter of the year."),
    ("Die Stadt plant Zuschüsse.", "de", "The city does not plan any grants."),
    ("销量下降了。", "zh", "Sales rose sharply in the last quarter of the year."),
    ("販売台数は減少した。", "ja", "Sales rose sharply in the last quarter of the year."),
    ("Продажи упали.", "ru", "Sales rose sharply in the last quarter of the year."),
    ("انخفضت المبيعات.", "ar", "Sales rose sharply in the last quarter of the year."),
    ("판매가 감소했다.", "ko", "Sales rose sharply in the last quarter of the year."),
    ("Sales rose.", "en", "销量下降了。"),
    ("Turnout fell from 58% to 41%.", "en", "Turnout rose from 41% to 58% in the last election of the council."),
    ("Frekwencja wzrosła z 58% do 41%.", "pl", "Turnout rose from 41% to 58% in the last election of the council."),
    (
        "Un litro cuesta un 42 % más que en abril.",
        "es",
        "El litro cuesta 5,40 euros, un 42 % menos que en abril de 2024.",
    ),
    ("保费比同价位燃油车低约20%。", "zh", "二手电动车的保费比同价位燃油车高出约20%，原因是维修费用难以估计。"),
    ("하루 이용 시간은 47분에서 61분으로 늘었다.", "ko", "하루 평균 이용 시간은 61분에서 47분으로 감소했다."),
    ("اخلط السائلين.", "ar", "Do not mix the two liquids before the pump has stopped."),
    ("Eine Batterie hält 18 Jahre.", "de", "A battery lasts 18 months."),
    ("电池可用18年间。", "zh", "A battery lasts 18 months."),
]
CONSISTENT = [
    ("Sales of cargo bikes in Freiburg rose by 12 percent last year, and rents fell.", "en", ENGLISH),
    ("Cargo bikes sell well in Freiburg, though the city does not subsidize them.", "en", ENGLISH),
    ("There is no subsidy for cargo bikes this summer.", "en", ENGLISH),
    ("Garages near the station became cheaper, and now cost 40 euros.", "en", ENGLISH),
    ("A battery lasts 18 months, or one and a half years, and costs 500 dollars.", "en", ENGLISH),
    ("It is not the first year in which sales rose.", "en", ENGLISH),
    ("Die Preise sind gestiegen.", "de", "Prices rose sharply in the last quarter of the year."),
    ("Die Preise bleiben unverändert.", "de", "Prices do not change."),
    ("Die Preise ändern sich nicht.", "de", "Prices remain unchanged."),
    ("Sie kommt selten.", "de", "She does not come often."),
    ("Die Stadt verzichtet auf Zuschüsse, ohne Gründe zu nennen.", "de", "The city does not plan any grants."),
    ("Solo quedan dos.", "es", "Only two are left."),
    ("No quedan más que dos.", "es", "Only two are left."),
    ("Il ne reste que deux vélos.", "fr", "Only two bikes are left."),
    ("销量上升了。", "zh", "Sales rose sharply in the last quarter of the year."),
    ("Eine Batterie hält 18 Monate und kostet 500 Dollar.", "de", "A battery lasts 18 months and costs $500."),
    ("In 12 Monaten.", "de", "Within twelve months, or 12 months."),
    ("Turnout rose to 58% from 41%.", "en", "Turnout rose from 41% to 58% in the last election of the council."),
    ("Die Beteiligung stieg von 41 auf 58 Prozent.", "de", "Turnout rose from 41% to 58% in the last election."),
    ("Lower prices lifted sales by 12 percent.", "en", "Sales rose by 12 percent because prices fell."),
    ("More than 60% pay less than 20 euros.", "en", "Over 60% of the members pay at most 20 euros per month."),
    ("Anything.", "en", ""),
]


@pytest.mark.parametrize(("text", "locale", "source"), CONTRADICTIONS)
def test_contradictions(text: str, locale: str, source: str) -> None:
    finding = checks.contradiction(text, source, locale)
    assert finding
    assert finding.reason is RejectionReason.CONTRADICTS_SOURCE


@pytest.mark.parametrize(
    ("text", "said", "source_said"),
    [
        ("It was said on Monday. A battery lasts 18 years.", "18", "18"),
        ("So far, a battery costs €500.", "500", "500"),
        (
            "It is hot. The city plans to subsidize cargo bikes this summer.",
            "The city plans to subsidize cargo bikes this summer.",
            "The city does not plan to subsidize cargo bikes this summer.",
        ),
    ],
)
def test_a_contradiction_is_located_in_the_text_and_in_the_source(text: str, said: str, source_said: str) -> None:
    found = checks.contradiction(text, ENGLISH, "en")
    assert found
    assert found.span
    assert found.source
    assert (text[slice(*found.span)], ENGLISH[slice(*found.source)]) == (said, source_said)


@pytest.mark.parametrize(("text", "locale", "source"), CONSISTENT)
def test_consistent_texts(text: str, locale: str, source: str) -> None:
    assert checks.contradiction(text, source, locale) is None


LADDERS = [("cl", "litres", "hectolitres"), ("g", "kg", "tonnes"), ("mm", "metres", "km"), ("kW", "MW", "GW")]


@pytest.mark.parametrize(
    ("said", "meant"), [(said, meant) for units in LADDERS for said in units for meant in units if said != meant]
)
def test_a_unit_with_another_prefix_is_another_unit(said: str, meant: str) -> None:
    found = checks.contradiction(
        f"It was 4.3 million {said} last year.", f"It was 4.3 million {meant} last year.", "en"
    )
    assert found is not None
    assert "4300000 is" in found.detail


NOT_YET = (
    "The city council has not yet approved the new warehouse, Ann Bell said. Rents in the harbour rose by 4 percent."
)
GERMAN = "Der Stadtrat berät weiter. Der Neubau ist noch nicht genehmigt, sagt Ada Brandt."
SPANISH = "«No subimos las tabletas; las hicimos más pequeñas», explica la fundadora de la empresa, Nuria Lahoz."


@pytest.mark.parametrize(
    ("point", "quote", "source", "locale", "found"),
    [
        ("The council has approved the warehouse.", NOT_YET[:95], NOT_YET, "en", True),
        ("The warehouse was approved.", "The warehouse has not been approved.", "", "en", True),
        ("Rents fell.", "Rents in the harbour rose by 4 percent.", NOT_YET, "en", True),
        ("Earnings shrank to 8.2 million.", "The result before tax rose from 6.9 to 8.2 million.", "", "en", True),
        ("Ürün 5.800 tona yükseldi.", "Rekolte 9.400 tondan 5.800 tona düştü.", "", "tr", True),
        ("Die Stadt hat den Bau genehmigt.", "Der Neubau ist noch nicht genehmigt", GERMAN, "de", True),
        ("A warehouse still lacks the approval of the council.", NOT_YET[:95], NOT_YET, "en", False),
        ("The council is still discussing the warehouse.", NOT_YET[:95], NOT_YET, "en", False),
        ("Approval of the new warehouse by the city council is pending.", NOT_YET[:95], NOT_YET, "en", False),
        ("Die Stadt berät, ob der Neubau genehmigt wird.", "Der Neubau ist noch nicht genehmigt", GERMAN, "de", False),
        ("The number of accidents is stable.", "The number of accidents has not risen.", "", "en", False),
        ("La empresa hizo más pequeñas las tabletas.", SPANISH[:60], SPANISH, "es", False),
        ("Prices fell.", "Rents in the harbour rose by 4 percent.", NOT_YET, "en", False),
        ("The council has approved the warehouse.", "Der Neubau ist noch nicht genehmigt", GERMAN, "en", False),
    ],
)
def test_a_statement_is_held_against_its_own_evidence(
    point: str, quote: str, source: str, locale: str, found: bool
) -> None:
    finding = checks.denied(point, quote, source or quote, locale)
    assert (reason(finding) is RejectionReason.CONTRADICTS_SOURCE) is found
    if finding:
        start = (source or quote).index(quote)
        assert (finding.span, finding.source) == ((0, len(point)), (start, start + len(quote)))


@pytest.mark.parametrize(
    ("point", "quote", "locale"),
    [
        ("Bakers open at noon.", "Bakers do not open before noon.", "en"),
        ("The shop closes at six.", "The shop does not close until six.", "en"),
        ("Most visitors stay for a week.", "Most visitors do not stay longer than a week.", "en"),
        ("Young buyers choose used bikes.", "Young buyers do not choose new bikes.", "en"),
        ("Residents pay a flat rate for water.", "Residents do not pay for water by the litre.", "en"),
        ("The grid can take more solar power.", "The grid cannot take more wind power.", "en"),
        ("The museum opened at night for the first time.", "The museum had never opened at night.", "en"),
        ("Volunteers run the library.", "The city does not run the library, volunteers do.", "en"),
        ("Buses run at night.", "Most buses do not run at night, except on Fridays.", "en"),
        ("Shops close early.", "If shops do not close early, staff leave.", "en"),
        ("Die Stadt baut Wohnungen.", "Nicht die Stadt baut Wohnungen.", "de"),
        ("Workers dropped off 300 bikes.", "The number of bikes rose to 300.", "en"),
        ("The harbour festival this fall draws 5,000 guests.", "The harbour festival has grown to 5,000 guests.", "en"),
        ("The workshop raised 4,000 euros.", "Donations to the workshop dropped to 4,000 euros.", "en"),
        ("Sales fell short of the target.", "Sales rose less than the target.", "en"),
        ("Visitors increased at the museum.", "The museum said there was no decline in visitors.", "en"),
        ("Prices are rising by 2 percent only.", "Inflation has fallen to 2 percent.", "en"),
        ("Fall festival draws 5,000 guests.", "The festival has grown to 5,000 guests.", "en"),
        ("With demand growing, unemployment is at 4 percent.", "Unemployment fell to 4 percent.", "en"),
        ("Rents fell in 2023.", "Rents rose in 2024.", "en"),
        ("Viele Gäste bleiben eine Woche.", "Viele Gäste bleiben nicht länger als eine Woche.", "de"),
        ("Busse fahren erstmals auch nachts.", "Bisher fahren Busse nicht nachts, ab Mai schon.", "de"),
        ("Das Dorf senkt die Gebühren.", "Die Gebühren steigen seit Jahren, das Dorf will gegensteuern.", "de"),
        ("Die Preise fallen auf, weil sie hoch sind.", "Die Preise sind gestiegen und hoch.", "de"),
        ("Le magasin ouvre à midi.", "Le magasin n'ouvre pas avant midi.", "fr"),
        ("Les jeunes achètent des vélos d'occasion.", "Les jeunes n'achètent pas de vélos neufs.", "fr"),
        ("El proyecto cuesta tres millones de euros.", "El proyecto no cuesta más de tres millones de euros.", "es"),
        ("El museo abrió por primera vez de noche.", "El museo no abrió nunca de noche hasta ayer.", "es"),
    ],
)
def test_a_limit_or_a_contrast_denies_nothing(point: str, quote: str, locale: str) -> None:
    assert checks.denied(point, quote, quote, locale) is None
