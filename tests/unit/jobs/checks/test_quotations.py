"""Quotations in several languages, under all their marks, and who is said to say them."""

from __future__ import annotations

import pytest

from thothy_ai.jobs import checks

# In each language: a source with two speakers, what the first of them says, an invention, and the two names.
SOURCES = {
    "en": (
        (
            'The office closed. "The new ramp will save us two hours every morning," said Ada Lovelace, a pilot. '
            'Master Tom Reed disagreed. "We cannot lift anything heavier than a van," Reed told reporters.'
        ),
        "The new ramp will save us two hours every morning",
        "The mayor has never listened to anybody's drivers here",
        ("Ada Lovelace", "Tom Reed"),
    ),
    "de": (
        (
            "Das Amt schloss. „Die neue Rampe spart uns jeden Morgen zwei Stunden“, sagte Ada Lovelace, die die Fähre "
            "leitet. Tom Reed widersprach. „Wir können nichts heben, was schwerer als ein Auto ist“, sagte Reed."
        ),
        "Die neue Rampe spart uns jeden Morgen zwei Stunden",
        "Der Bürgermeister hat hier noch nie jemandem zugehört",
        ("Ada Lovelace", "Tom Reed"),
    ),
    "fr": (
        (
            "Le bureau a fermé. « La nouvelle rampe nous fera gagner deux heures chaque matin », a dit Ada Lovelace, "
            "qui dirige le ferry. Tom Reed doute. « Nous ne pouvons rien soulever de plus lourd », a dit Reed."
        ),
        "La nouvelle rampe nous fera gagner deux heures chaque matin",
        "Le maire n'a jamais écouté personne ici depuis dix ans",
        ("Ada Lovelace", "Tom Reed"),
    ),
    "es": (
        (
            "La oficina cerró. «La nueva rampa nos ahorrará dos horas cada mañana», dijo Ada Lovelace. "
            "Tom Reed lo duda. «No podemos levantar nada pesado», dijo Reed."
        ),
        "La nueva rampa nos ahorrará dos horas cada mañana",
        "El alcalde nunca ha escuchado a nadie por aquí",
        ("Ada Lovelace", "Tom Reed"),
    ),
    "ru": (
        (
            "Управление закрылось. «Новый пандус сэкономит нам два часа каждое утро», — сказала Ада Лавлейс, она "
            "руководит линией. Том Рид сомневается. «Мы не можем поднять ничего тяжелее фургона», — сказал Рид."
        ),
        "Новый пандус сэкономит нам два часа каждое утро",
        "Мэр никогда никого здесь не слушал и не будет",
        ("Ада Лавлейс", "Том Рид"),
    ),
    "ja": (
        (
            "港は月曜日に閉まった。「新しいスロープのおかげで毎朝二時間節約できます」とフェリー会社を率いるエイダ・ラブレスさんは"
            "話した。「バンより重いものは何も持ち上げられません」とトム・リードさんは記者たちに語った。"
        ),
        "新しいスロープのおかげで毎朝二時間節約できます",
        "市長はここで誰の話も聞いたことがありません",
        ("エイダ・ラブレス", "トム・リード"),
    ),
}


@pytest.mark.parametrize(
    ("locale", "form"),
    [
        ("en", '"{quotation}," said {name}.'),
        ("en", "Said {name}: '{quotation}.'"),
        ("en", "The day was long, said {name}: ‘{quotation}.’"),
        ("en", "According to {name}, '{quotation}'."),
        ("en", "{name}, who runs a ferry, said that “{quotation}”."),
        ("en", "As {name} put it: “{quotation}.”"),
        ("en", "Chair {name}: «{quotation}»"),
        ("de", "‚{quotation}‘, sagte {name}."),
        ("de", "»{quotation}«, sagt {name}."),
        ("de", "›{quotation}‹, so {name}."),
        ("de", "Laut {name} gilt: „{quotation}.“"),
        ("fr", "« {quotation} », affirme {name}."),
        ("fr", "Selon {name}, ‹ {quotation} ›."),
        ("es", "“{quotation}”, señaló {name}."),
        ("es", "{name}: '{quotation}'."),
        ("ru", "«{quotation}», — отметил {name}."),
        ("ru", "{name}: „{quotation}“."),
        ("ja", "{name}さんは『{quotation}』と話した。"),
        ("ja", "「{quotation}」と{name}さん。"),
    ],
)
def test_words_and_speaker_of_a_quotation_are_the_source_s(locale: str, form: str) -> None:
    source, said, invented, (speaker, other) = SOURCES[locale]
    assert checks.misquoted(form.format(quotation=said, name=speaker), source, locale) is None
    wrong = checks.misquoted(form.format(quotation=said, name=other), source, locale)
    assert wrong is not None
    assert other in wrong.detail.rpartition(" to ")[2]
    unsaid = checks.misquoted(form.format(quotation=invented, name=speaker), source, locale)
    assert unsaid is not None
    assert "does not say" in unsaid.detail


def test_a_speaker_may_have_an_inflected_name() -> None:
    source, said, _, _ = SOURCES["ru"]
    assert checks.misquoted(f"По словам Ады Лавлейс, «{said}».", source, "ru") is None
    assert checks.misquoted(f"По словам Тома Рида, «{said}».", source, "ru") is not None


@pytest.mark.parametrize(
    ("text", "locale"),
    [
        ("In the '90s the drivers' wages fell, and the owners' profits didn't.", "en"),
        ("Rock 'n' roll is the drivers' music, and always was.", "en"),
        ("'s Avonds rijden alle bussen langs de foto's.", "nl"),
        ("L'été, c'est qu'on n'a jamais l'envie d'aller vers l'eau.", "fr"),
        ("Un po' di pane e un po' di vino a tutt'e due.", "it"),
    ],
)
def test_an_apostrophe_opens_no_quotation(text: str, locale: str) -> None:
    assert checks.misquoted(text, SOURCES.get(locale, ("",))[0], locale) is None


@pytest.mark.parametrize(
    ("text", "locale"),
    [
        ("„Er sagte: ‚Die neue Rampe spart uns jeden Morgen zwei Stunden‘ und ging“, heißt es.", "de"),
        ("«Он сказал: «Мэр никогда никого здесь не слушал» и ушёл»", "ru"),
        ("「彼は『市長はここで誰の話も聞いたことがない』と言った」", "ja"),
    ],
)
def test_a_quotation_within_another_belongs_to_it(text: str, locale: str) -> None:
    found = checks.misquoted(text, SOURCES[locale][0], locale)
    assert found is not None
    assert found.span is not None
    assert found.span[0] == 0


def test_an_office_is_the_person_who_holds_it() -> None:
    source = "„Die neue Rampe spart uns zwei Stunden“, sagte Hafenmeister Tom Reed. Tom Reed ist 60."
    assert checks.misquoted("„Die neue Rampe spart uns zwei Stunden“, sagt Reed.", source, "de") is None
    source = "Hafenmeister Tom Reed kam. Es regnete. „Die neue Rampe spart uns zwei Stunden“, sagte Hafenmeister Reed."
    assert checks.misquoted("„Die neue Rampe spart uns zwei Stunden“, sagt Tom.", source, "de") is None


MEETING = (
    "The city council met on Monday to discuss the budget for the coming year. Many people had come to listen, and the "
    "debate was long, sometimes loud, and in the end without any result that would please those who live there.\n\n"
    '"We will not sell the old harbour to anybody," said Ada Lovelace, a shopkeeper. The mayor was silent.'
)
SITZUNG = (
    "Der Gemeinderat tagte am Montag, und viele waren gekommen, um zuzuhören, denn es ging um viel Geld, um Arbeit und "
    "um die Frage, wer hier in zehn Jahren noch wohnen kann und will und wer dann nicht mehr.\n\n"
    "„Wir verkaufen den alten Hafen an niemanden“, sagte Ada Brandt, eine Händlerin. Alle schwiegen."
)


@pytest.mark.parametrize(
    ("form", "found"),
    [
        ('"{quotation}," said the city council.', "to city council, not Ada Lovelace"),
        ('"{quotation}," the mayor said.', "to mayor, not Ada Lovelace"),
        ("The mayor said: “{quotation}.”", "to mayor, not Ada Lovelace"),
        ("According to the council, '{quotation}'.", "to council, not Ada Lovelace"),
        ("The council: “{quotation}.”", "to council, not Ada Lovelace"),
        ('"{quotation}," said the shopkeeper.', None),
        ('"{quotation}," said a resident.', None),
        ('"{quotation}," she said.', None),
        ("The mayor was silent, but “{quotation},” said Ada Lovelace.", None),
    ],
)
def test_a_speaker_without_a_name_is_doubted_if_another_one_said_it(form: str, found: str | None) -> None:
    finding = checks.misquoted(form.format(quotation="We will not sell the old harbour to anybody"), MEETING, "en")
    assert (finding and found is not None and found in finding.detail) == (found and True)


FOUNDER = (
    "The company's founder, Tom Reed, was asked about jobs. A debate followed, long and sometimes loud, in which many "
    "who work there spoke of what they had seen, and of what they fear for the years to come, if nothing changes. "
    '"Nobody will lose a job here," Reed told the paper. The head of the firm had said so before.'
)
PATRON = (
    "Le patron de l'entreprise a parlé d'emplois. « Personne ne perdra son travail ici », a dit Tom Rey au journal. "
    "Tout le monde était là."
)


@pytest.mark.parametrize(
    ("text", "source", "locale"),
    [
        ('"Nobody will lose a job here," said the head of the company.', FOUNDER, "en"),
        ('"Nobody will lose a job here," said the firm.', FOUNDER, "en"),
        ("« Personne ne perdra son travail ici », assure le patron.", PATRON, "fr"),
        ("Selon le journal, « Personne ne perdra son travail ici ».", PATRON, "fr"),
    ],
)
def test_who_leads_a_firm_or_asks_may_be_anybody(text: str, source: str, locale: str) -> None:
    assert checks.misquoted(text, source, locale) is None


def test_a_quotation_as_evidence_need_not_share_a_word_with_its_point() -> None:
    points = [
        {
            "point": "Young families move away.",
            "quote": '"We had to leave; we could not pay the rent," says a father of two.',
        },
        {
            "point": "Rents in the harbour rose by 9 percent, twice as fast as young incomes of families.",
            "quote": "Rents rose by 9 percent last year, while incomes of young families grew by 4 percent.",
        },
    ]
    source = " ".join(point["quote"] for point in points)
    assert [checks.exchanged(place, points, source, "en") for place in (0, 1)] == [None, None]


def test_a_speaker_without_a_name_in_german() -> None:
    said = "„Wir verkaufen den alten Hafen an niemanden“"
    assert checks.misquoted(f"{said}, sagte der Gemeinderat.", SITZUNG, "de") is not None
    assert checks.misquoted(f"{said}, sagte die Händlerin.", SITZUNG, "de") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"Never again," said Ada Lovelace.', True),
        ("Ada Lovelace said: “It is over.”", True),
        ('They call it the "green wave", said Ada Lovelace.', False),
        ('"The old harbour," said Ada Lovelace.', False),
        ('The film "Never Again" is shown in the harbour.', False),
    ],
)
def test_a_quotation_of_few_words_is_compared_if_it_is_what_somebody_says(text: str, found: bool) -> None:
    assert (checks.misquoted(text, MEETING, "en") is not None) is found
