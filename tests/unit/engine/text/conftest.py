"""A frontend over a scripted core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from transformers import PreTrainedTokenizerFast

from tests.support.scripted_core import Harness, ScriptedCore
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.text.bounds import token_bound
from thothy_ai.engine.text.frontend import Frontend, TextTools
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.token_bytes import TokenBytes


@pytest.fixture
def harness(tokenizer: PreTrainedTokenizerFast, vocabulary: TokenBytes) -> Iterator[Harness]:
    cores: list[ScriptedCore] = []

    def make_core(on_events: OnEvents) -> ScriptedCore:
        cores.append(ScriptedCore(on_events))
        return cores[0]

    bound = token_bound(tokenizer.backend_tokenizer, vocabulary)
    frontend = Frontend(TextTools(PromptEncoder(tokenizer), vocabulary, bound), make_core)
    yield Harness(frontend, cores[0], lambda text: tokenizer.encode(text, add_special_tokens=False))
    frontend.stop()
