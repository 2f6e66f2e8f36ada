"""What is written in stages."""

from __future__ import annotations

import json

from tests.support.plans import PLAIN
from thothy_ai.jobs import Call, Context, End, Output, TrendSummary, registry
from thothy_ai.jobs.api.plan import run

PARAGRAPH = (
    "In the Freiburg district of Vauban, the bakery run and the school run now happen in the same vehicle. "
    "The local dealer Radhaus Sonne sold 418 cargo bikes last year. Nobody asks about top speed. "
    "What holds the trend back is space, as most of these bikes do not go down cellar stairs."
)
GOOD = {
    "key_points_1": {"point": "One dealer sold more cargo bikes last year than in all the years before."},
    "standfirst": "In Freiburg, the trips to bakery and school happen on cargo bikes, and one dealer sold hundreds.",
    "title": "Cargo bikes take over from the second car",
    "why_it_matters": "Space holds the trend back, so families need room for their bikes on the school run.",
    "tags": ["cargo bikes", "Freiburg", "parking"],
    "confidence": "high",
}
MOST_CHARACTERS = 3_000  # of a prompt


def test_a_prompt_that_is_refused_in_a_later_stage_shortens_the_source() -> None:
    request = TrendSummary(source="\n\n".join([PARAGRAPH] * 12), length="short")
    sizes: dict[str, list[int]] = {}

    def answer(call: Call) -> Output:
        name, *_ = call.schema["properties"]
        size = len(call.messages[-1].content)
        sizes.setdefault(name, []).append(size)
        if name == "passages":
            return Output(json.dumps({"passages": [1]}))
        if size > MOST_CHARACTERS:
            return Output("", End.PROMPT_TOO_LONG)
        return Output(json.dumps({key: GOOD[key] for key in call.schema["properties"]}))

    context = Context(parameters=PLAIN.parameters, max_context=4_096)
    verdict = run(registry.kind_of(request).plan(request, context), answer)
    assert verdict.accepted, verdict.detail
    assert max(sizes["key_points_1"]) < MOST_CHARACTERS < sizes["standfirst"][0]
    assert sizes["standfirst"][-1] < MOST_CHARACTERS
