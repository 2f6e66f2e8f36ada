"""Describes an invalid setting on one line that names its variable and never shows its value."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from thothy_ai.settings.variables import PREFIX

_EXPECTED = {
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}


def first_problem(error: ValidationError) -> str:
    """The first problem as `THOTHY_NAME: message`, without the value, which may contain a password."""
    problem = error.errors(include_input=False, include_url=False)[0]
    if not problem["loc"]:  # a conflict between settings
        return _says(problem)
    return f"{PREFIX}{str(problem['loc'][0]).upper().removeprefix(PREFIX)}: {_says(problem)}"


def _says(problem: ErrorDetails) -> str:
    template = _EXPECTED.get(problem["type"])
    return template.format(**problem.get("ctx", {})) if template else problem["msg"]
