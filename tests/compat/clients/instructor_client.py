"""Instructor: structured answers by tools, by JSON schemas and by JSON mode."""

from __future__ import annotations

import os

import instructor
import pytest
from openai import OpenAI
from pydantic import BaseModel, Field

MODEL = os.environ["COMPAT_MODEL"]
MODES = (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA)


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int = Field(ge=0)


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_is_an_instance(mode: instructor.Mode) -> None:
    client = instructor.from_openai(OpenAI(max_retries=0), mode=mode)
    city = client.chat.completions.create(
        model=MODEL, response_model=City, messages=[{"role": "user", "content": "Name a city."}], max_tokens=300,
        temperature=0, max_retries=0,
    )  # fmt: skip
    assert isinstance(city, City)


def test_partial_answers_stream() -> None:
    client = instructor.from_openai(OpenAI(max_retries=0), mode=instructor.Mode.TOOLS)
    parts = list(
        client.chat.completions.create_partial(
            model=MODEL, response_model=City, messages=[{"role": "user", "content": "Name a city."}], max_tokens=300,
            temperature=0, max_retries=0,
        )
    )  # fmt: skip
    assert parts[-1].name is not None
