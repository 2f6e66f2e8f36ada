"""Tools, and an answer that thinks, speaks and calls them, in pieces."""

from __future__ import annotations

from typing import Any

from thothy_ai.engine.api import CallDelta, Delta

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"],
        "additionalProperties": False}  # fmt: skip
ZONE = {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"],
        "additionalProperties": False}  # fmt: skip
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "description": "Of a city.", "parameters": CITY}},
    {"type": "function", "function": {"name": "time", "parameters": ZONE, "strict": True}},
]
CALLED = [
    Delta("", "", (), thoughts="I must "),
    Delta("", "", (), thoughts="look."),
    Delta("", "Look", (), calls=()),
    "ing:",
    Delta("", "", (), calls=(CallDelta(0, "weather", '{"city"'),)),
    Delta("", "", (), calls=(CallDelta(0, arguments=': "Zü"}'), CallDelta(1, "time"))),
    Delta("", "", (), calls=(CallDelta(1, arguments='{"zone": "UTC"}'),)),
]
CALLS = [("weather", '{"city": "Zü"}'), ("time", '{"zone": "UTC"}')]
