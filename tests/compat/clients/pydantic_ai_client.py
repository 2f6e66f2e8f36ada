"""Pydantic AI: texts, streams, outputs by tools, natively and by prompt."""

from __future__ import annotations

import asyncio
import os

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

MODEL = os.environ["COMPAT_MODEL"]
SETTINGS = ModelSettings(max_tokens=200, temperature=0.0)


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


def chat() -> OpenAIChatModel:
    return OpenAIChatModel(MODEL, provider=OpenAIProvider())


@pytest.mark.parametrize("model", [OpenAIChatModel, OpenAIResponsesModel])
def test_a_text(model: type) -> None:
    agent = Agent(model(MODEL, provider=OpenAIProvider()), model_settings=SETTINGS)
    result = agent.run_sync("Say hello to Anna.")
    assert result.output
    assert result.usage.output_tokens > 0


def test_a_stream() -> None:
    async def body() -> str:
        async with Agent(chat(), model_settings=SETTINGS).run_stream("Say hello to Anna.") as stream:
            return "".join([text async for text in stream.stream_text(delta=True)])

    assert asyncio.run(body())


@pytest.mark.parametrize("form", [ToolOutput, NativeOutput])
def test_a_typed_output(form: type) -> None:
    agent = Agent(chat(), output_type=form(City), model_settings=SETTINGS)
    assert isinstance(agent.run_sync("Name a city.").output, City)


def test_a_tool_is_offered() -> None:
    agent = Agent(chat(), model_settings=SETTINGS)

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    assert agent.run_sync("Say hello to Anna.").output
