"""Words pydantic's validation errors in one plain sentence each.

A message completes a sentence that begins with the field's name: "source: is missing". It shows neither the value,
which may be long or private, nor a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from thothy_ai.jobs.schema import expected_text
from thothy_ai.jobs.text.strings import counted

Context = Mapping[str, Any]

_TEXT, _LIST, _OBJECT, _WHOLE, _NUMBER = (
    "must be text", "must be a list", "must be an object", "must be a whole number", "must be a number",
)  # fmt: skip
_DATE, _TIME = "must be a date such as 2026-11-21", "must be a time such as 06:00"
_MOMENT, _DURATION = "must be a date and time such as 2026-11-21T06:00", "must be a duration such as PT2H"
_URL, _UUID = "must be a URL such as https://example.com/page", "must be a UUID"
_FIXED = {
    "missing": "is missing",
    "string_type": _TEXT, "string_unicode": _TEXT, "bytes_type": _TEXT, "bytes_invalid_encoding": _TEXT,
    "string_not_ascii": "must be ASCII text",
    "list_type": _LIST, "tuple_type": _LIST, "set_type": _LIST, "frozen_set_type": _LIST, "iterable_type": _LIST,
    "deque_type": _LIST, "named_tuple_type": _LIST,
    "dict_type": _OBJECT, "mapping_type": _OBJECT, "model_type": _OBJECT, "model_attributes_type": _OBJECT,
    "dataclass_type": _OBJECT, "frozen_dict_type": _OBJECT, "ordered_dict_type": _OBJECT, "counter_type": _OBJECT,
    "invalid_key": "must have only text as keys",
    "none_required": "must be null",
    "bool_type": "must be true or false", "bool_parsing": "must be true or false",
    "int_type": _WHOLE, "int_parsing": _WHOLE, "int_from_float": _WHOLE, "int_parsing_size": "is too large a number",
    "float_type": _NUMBER, "float_parsing": _NUMBER, "decimal_type": _NUMBER, "decimal_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "date_type": _DATE, "date_parsing": _DATE, "date_from_datetime_parsing": _DATE,
    "date_from_datetime_inexact": _DATE,
    "time_type": _TIME, "time_parsing": _TIME, "time_delta_type": _DURATION, "time_delta_parsing": _DURATION,
    "datetime_type": _MOMENT, "datetime_parsing": _MOMENT, "datetime_from_date_parsing": _MOMENT,
    "datetime_object_invalid": _MOMENT,
    "date_past": "must be in the past", "datetime_past": "must be in the past",
    "date_future": "must be in the future", "datetime_future": "must be in the future",
    "timezone_naive": "must have no time zone", "timezone_aware": "must have a time zone",
    "url_type": _URL, "url_parsing": _URL, "url_syntax_violation": _URL, "uuid_type": _UUID, "uuid_parsing": _UUID,
    "recursion_loop": "refers to itself", "recursion_depth_exceeded": "is nested too deeply",
}  # fmt: skip

_JSON = {"False": "false", "True": "true", "None": "null"}
_FROM_CONTEXT: Mapping[str, Callable[[Context], str]] = {
    "string_too_short": lambda context: f"must have at least {counted(context['min_length'], 'character')}",
    "string_too_long": lambda context: f"must have at most {counted(context['max_length'], 'character')}",
    "bytes_too_short": lambda context: f"must have at least {counted(context['min_length'], 'byte')}",
    "bytes_too_long": lambda context: f"must have at most {counted(context['max_length'], 'byte')}",
    "too_short": lambda context: f"must have at least {counted(context['min_length'], 'item')}",
    "too_long": lambda context: f"must have at most {counted(context['max_length'], 'item')}",
    "string_pattern_mismatch": lambda context: expected_text(context["pattern"]) or "does not have the expected form",
    "enum": lambda context: f"must be {context['expected']}",
    "literal_error": lambda context: f"must be {_JSON.get(context['expected'], context['expected'])}",
    "greater_than": lambda context: f"must be greater than {context['gt']}",
    "greater_than_equal": lambda context: f"must be at least {context['ge']}",
    "less_than": lambda context: f"must be less than {context['lt']}",
    "less_than_equal": lambda context: f"must be at most {context['le']}",
    "multiple_of": lambda context: f"must be a multiple of {context['multiple_of']}",
    "json_invalid": lambda context: f"is not JSON: {context['error']}",
    "url_scheme": lambda context: f"must be a URL that begins with {context['expected_schemes']}",
    "url_too_long": lambda context: f"must be a URL of at most {counted(context['max_length'], 'character')}",
    "uuid_version": lambda context: f"must be a UUID of version {context['expected_version']}",
    "union_tag_invalid": lambda context: f"must have {context['discriminator']} set to {context['expected_tags']}",
    "union_tag_not_found": lambda context: f"must have {context['discriminator']}",
    "value_error": lambda context: str(context["error"]) or "is invalid",
    "assertion_error": lambda context: str(context["error"]) or "is invalid",
}
_OF_PYDANTIC = frozenset(get_args(ErrorType))
_INPUT = re.compile(r"^(?:.* )?[Ii]nput (?:should|must) (not )?(?:be |have )?")


def first_problem(error: ValidationError, fields: Iterable[str] = ()) -> tuple[str, str]:
    """The first invalid field, dotted and empty for the value as a whole, and what is wrong with it.

    `fields` are the valid names; the nearest one is suggested for an unknown name.
    """
    problem = error.errors(include_url=False, include_input=False)[0]
    return ".".join(map(str, problem["loc"])), describe(problem, fields)


def describe(problem: ErrorDetails, fields: Iterable[str] = ()) -> str:
    """A problem on one line. Error types other than pydantic's keep their own message."""
    name, context = problem["type"], problem.get("ctx", {})
    if name == "extra_forbidden":
        known = list(fields) if len(problem["loc"]) == 1 else []
        near = get_close_matches(str(problem["loc"][-1]), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; available: {', '.join(known)}" if known else ""
        said = f"is not a known field{hint}"
    elif name in _FIXED:
        said = _FIXED[name]
    elif name in _FROM_CONTEXT:
        said = _FROM_CONTEXT[name](context)
    elif name not in _OF_PYDANTIC:
        said = problem["msg"]
    elif found := _INPUT.match(problem["msg"]):  # a rare message, such as "Input should be a valid fraction"
        said = f"must {'not ' if found[1] else ''}be {problem['msg'][found.end() :]}"
    else:
        said = f"is invalid: {problem['msg'][:1].lower()}{problem['msg'][1:]}".replace("input", "value")
    return " ".join(said.split())
