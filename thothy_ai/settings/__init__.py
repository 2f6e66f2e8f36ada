"""The settings of a service process: `Settings`, and the `THOTHY_*` variables that are not settings."""

from __future__ import annotations

from thothy_ai.settings.addresses import endpoint
from thothy_ai.settings.settings import OwnSettings, Settings
from thothy_ai.settings.stack import STACK_LOCK
from thothy_ai.settings.values import PublishingTime
from thothy_ai.settings.variables import PREFIX, STACK_ENV, UnknownVariable, unknown_variables

__all__ = [
    "PREFIX",
    "STACK_ENV",
    "STACK_LOCK",
    "OwnSettings",
    "PublishingTime",
    "Settings",
    "UnknownVariable",
    "endpoint",
    "unknown_variables",
]
