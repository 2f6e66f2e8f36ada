"""LlamaIndex' `OpenAILike`: chat, completion, streams, structured answers, tools."""

from __future__ import annotations

import os

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

MODEL, URL = os.environ["COMPAT_MODEL"], os.environ["OPENAI_BASE_URL"]
HELLO = [ChatMessage(role="user", content="Say hello to Anna.")]


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


def llm(**options: object) -> OpenAILike:
    given = {"is_chat_model": True, "is_function_calling_model": True, "max_tokens": 100, **options}
    return OpenAILike(model=MODEL, api_base=URL, api_key="none", context_window=2048, max_retries=0, **given)


def test_chat_whole_and_streamed() -> None:
    assert llm().chat(HELLO).message.content
    assert list(llm().stream_chat(HELLO))[-1].message.content


def test_completion_whole_and_streamed() -> None:
    model = llm(is_chat_model=False)
    assert model.complete("One, two,").text
    assert list(model.stream_complete("One, two,"))[-1].text


@pytest.mark.parametrize("mode", [True, False])
def test_structured_answers(mode: bool) -> None:
    model = llm(is_function_calling_model=mode, should_use_structured_outputs=not mode, max_tokens=300)
    assert isinstance(model.as_structured_llm(City).complete("Name a city.").raw, City)


def test_a_tool_is_called() -> None:
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    model, tool = llm(max_tokens=300), FunctionTool.from_defaults(weather)
    answer = model.chat_with_tools([tool], user_msg="What is the weather in Oslo?", tool_required=True)
    [call, *_] = model.get_tool_calls_from_response(answer)
    assert call.tool_name == "weather"
    assert isinstance(call.tool_kwargs["city"], str)
