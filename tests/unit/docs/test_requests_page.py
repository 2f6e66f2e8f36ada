"""The page on requests: it names every field there is and no other, the limits are the code's, its example runs."""

from __future__ import annotations

import asyncio
import re
from dataclasses import fields
from pathlib import Path

from tests.support.local_client import LocalEngineClient
from thothy_ai.engine.api import MAX_BEAMS, MAX_CHOICES, MAX_LOGPROBS, BeamSearch, EarlyStopping, SamplingParams
from thothy_ai.engine.api import sampling as sampling_params
from thothy_ai.engine.null.backend import NullEngine

PAGE = (Path(__file__).parents[3] / "docs" / "requests.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """First cells of the table with this heading, in order, with the rest of their rows."""
    table = PAGE[PAGE.index(f"| {heading} |") :].partition("\n\n")[0].splitlines()[2:]
    return {row.split("|")[1].strip().strip("`"): row for row in table}


def test_the_tables_have_every_field() -> None:
    assert rows("field").keys() == {field.name for field in fields(SamplingParams)}
    assert rows("field of `BeamSearch`").keys() == {field.name for field in fields(BeamSearch)}
    assert rows("field of the request").keys() == {"n", "best_of", "beam_search"}


def test_limits_are_those_of_the_code() -> None:
    sampling = rows("field")
    assert (
        f"| {sampling_params.MAX_BIASES} tokens, -100 to {sampling_params.MAX_BIAS:.0f} each |"
        in sampling["logit_bias"]
    )
    assert f"| 0 to {MAX_LOGPROBS} |" in sampling["logprobs"]
    assert f"| {sampling_params.MAX_STOPS} tokens |" in sampling["stop_token_ids"]
    assert f"| {sampling_params.MAX_STOPS} strings of {sampling_params.MAX_STOP:,} characters |" in sampling["stop"]
    assert f"| 1 to {MAX_CHOICES} |" in rows("field of the request")["n"]
    assert f"| 2 to {MAX_BEAMS} |" in rows("field of `BeamSearch`")["width"]
    assert all(f"`{value}`" in rows("field of `BeamSearch`")["early_stopping"] for value in EarlyStopping)


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)

    async def body() -> None:
        client = LocalEngineClient(NullEngine())
        await client.start()
        assert len((await names["best_hooks"](client, "A text.")).choices) == 2

    asyncio.run(body())
