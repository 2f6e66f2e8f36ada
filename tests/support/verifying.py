"""A verifying model for tests: it reads the claims of its prompt, and labels them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from thothy_ai.jobs.api.plan import Call, Output

_CLAIM = re.compile(r"^\d+\. (.+)$", re.MULTILINE)


def claims_of_prompt(prompt: str) -> list[str]:
    """The claims that a prompt asks about, which follow the source."""
    return _CLAIM.findall(prompt.partition("</source>")[2] or prompt)


def claims_in(call: Call) -> list[str]:
    """The claims that a call asks about."""
    return claims_of_prompt(call.messages[-1].content)


def labelling(call: Call, letters: Mapping[str, str]) -> Output:
    """Cites the first passage, and gives a claim that contains one of these words the letter; S to all others."""
    found = (next((letter for words, letter in letters.items() if words in claim), "S") for claim in claims_in(call))
    return Output(json.dumps({"claims": " ".join(f"a {letter}" for letter in found)}))
