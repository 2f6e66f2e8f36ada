"""A report about night trains: its source, its parts, and answers that write it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from thothy_ai.jobs import Report, ReportArtifact, registry
from thothy_ai.jobs.api.plan import Call, Context, Output, run
from thothy_ai.jobs.api.verdict import Verdict

SOURCE = """Sleeping across the border

The 19:42 from Vienna leaves with every bed taken. The operator Nordstern carried 1.9 million overnight passengers last
year, 28 percent more than in the year before. A private company, Lune Rail, opened lines from Paris to Copenhagen and
to Rome.

Most sleeping cars in Europe were built before 1990, and only two factories still make them. A new car costs about three
million euros. Track fees make it worse, because a train that crosses four countries pays four tariffs.

A bed in a shared compartment costs between 89 and 189 euros. Families did worst, since few trains still sell a whole
compartment for the price of two adults.
"""
OUTLINE: dict[str, Any] = {
    "title": "Night trains fill up faster than cars can be built",
    "sections": [
        {
            "heading": "Record demand",
            "covers": "How many more travellers choose the night.",
            "quotes": ["The 19:42 from Vienna leaves with every bed taken."],
        },
        {
            "heading": "Too few cars",
            "covers": "Why operators cannot add trains.",
            "quotes": ["A new car costs about three million euros."],
        },
        {
            "heading": "What a bed costs",
            "covers": "Prices, and who pays most.",
            "quotes": ["A bed in a shared compartment costs between 89 and 189 euros."],
        },
    ],
}
SECTIONS: dict[str, dict[str, Any]] = {
    "Record demand": {
        "quotes": [
            (
                "The operator Nordstern carried 1.9 million overnight passengers last year, 28 percent more than "
                "in the year before."
            )
        ],
        "paragraphs": [
            (
                "Demand for travel by night has grown by more than a quarter within one year at Nordstern. Its rival "
                "Lune Rail has added routes from Paris, and departures from Vienna are sold out."
            )
        ],
    },
    "Too few cars": {
        "quotes": [
            "Most sleeping cars in Europe were built before 1990, and only two factories still make them.",
            "A new car costs about three million euros.",
        ],
        "paragraphs": [
            (
                "The sleeping cars that Europe has are old, and hardly anyone builds new ones. At three million euros "
                "each, operators buy slowly."
            )
        ],
    },
    "What a bed costs": {
        "quotes": ["A bed in a shared compartment costs between 89 and 189 euros."],
        "paragraphs": [
            (
                "Travellers who share a compartment pay at least 89 euros for their bed. Parents with children fare "
                "worse, because whole compartments at a price for two have become rare."
            )
        ],
    },
}
SUMMARY = "Night trains draw record crowds, but old cars and dear new ones keep operators from adding beds."
REQUEST = Report(source=SOURCE, sections=3, length="short")
KIND = registry.find("report")


def heading_in(call: Call) -> str:
    instruction = call.messages[-1].content.rpartition("</source>")[2]
    return instruction.partition("Write the section “")[2].partition("”")[0]


def step_of(call: Call) -> str:
    properties = call.schema["properties"]
    return next(name for name in ("sections", "paragraphs", "summary", "passages") if name in properties)


def scripted(
    outline: dict[str, Any] = OUTLINE, sections: dict[str, dict[str, Any]] | None = None, summary: str = SUMMARY
) -> Callable[[Call], Output]:
    def answer(call: Call) -> Output:
        values = {
            "sections": lambda: outline,
            "paragraphs": lambda: (sections or SECTIONS)[heading_in(call)],
            "summary": lambda: {"summary": summary},
            "passages": lambda: {"passages": [1]},
        }
        return Output(json.dumps(values[step_of(call)]()))

    return answer


def judged(answer: Callable[[Call], Output], request: Report = REQUEST, context: Context | None = None) -> Verdict:
    return run(KIND.plan(request, context or Context()), answer)


def report(verdict: Verdict) -> ReportArtifact:
    assert isinstance(verdict.artifact, ReportArtifact)
    return verdict.artifact
