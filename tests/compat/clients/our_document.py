"""Requests that schemathesis makes from our own document of `/api`: none may crash the server, and answers are as it
says.
"""

from __future__ import annotations

import os
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

ROOT = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")


def without_patterns(schema: Any) -> Any:
    """The document without regular expressions over all of Unicode, for which Hypothesis needs minutes each."""
    match schema:
        case dict():
            kept = {name: value for name, value in schema.items() if name != "pattern" or isinstance(value, dict)}
            return {name: without_patterns(value) for name, value in kept.items()}
        case list():
            return [without_patterns(each) for each in schema]
    return schema


schema = schemathesis.openapi.from_dict(without_patterns(requests.get(f"{ROOT}/api/openapi.json", timeout=60).json()))
schema.config.update(base_url=ROOT)


@schema.parametrize()
@settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_request_crashes_the_server(case: schemathesis.Case) -> None:
    response = case.call(timeout=60)
    checks = [not_a_server_error, content_type_conformance, response_schema_conformance]
    case.validate_response(response, checks=checks)
    if response.status_code >= 400:
        error = response.json()["error"]
        assert error["message"]
        assert isinstance(error["code"], str)
