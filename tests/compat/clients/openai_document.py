"""Bodies that schemathesis makes from OpenAI's own document: none may crash the server, and answers are as described.

The document is OpenAI's (MIT, see `openai-openapi.LICENSE`), reduced to our routes and without its texts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

MODEL, URL = os.environ["COMPAT_MODEL"], os.environ["OPENAI_BASE_URL"]
DOCUMENT = json.loads((Path(__file__).parents[1] / "openai-openapi.json").read_text())
for name in ("ListFilesResponse", "ListBatchesResponse"):
    for field in ("first_id", "last_id"):  # of an empty list: OpenAI's own answer is null
        DOCUMENT["components"]["schemas"][name]["properties"][field]["type"] = ["string", "null"]
schema = schemathesis.openapi.from_dict(DOCUMENT)
schema.config.update(base_url=URL)
SHORT = {"max_completion_tokens": 4, "max_tokens": 4, "max_output_tokens": 16}


@schema.parametrize()
@settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_body_crashes_the_server(case: schemathesis.Case) -> None:
    if isinstance(case.body, dict) and "model" in case.body:
        case.body["model"] = MODEL
        case.body |= {name: value for name, value in SHORT.items() if name in case.body}
    response = case.call(timeout=60)
    case.validate_response(response, checks=[not_a_server_error, response_schema_conformance])
    if response.status_code >= 400:
        error = response.json()["error"]
        assert error["message"]
        assert error["code"] is None or isinstance(error["code"], str)


def test_bodies_with_every_scalar_are_answered_or_refused() -> None:
    """Of one field each, since a body with several wrong ones is refused for the first."""
    plain = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    fields = schema.raw_schema["components"]["schemas"]["CreateChatCompletionRequest"]
    names = {name for part in fields["allOf"] for name in part.get("properties", {})}
    assert len(names) > 20
    for name in sorted(names - {"messages", "model"}):
        for value in (None, True, 0, -1, 1.5, "x", [], {}, 10**30):
            response = requests.post(f"{URL}/chat/completions", json={**plain, name: value}, timeout=60)
            assert response.status_code in {200, 400}, (name, value, response.text)
            if response.status_code == 400:
                assert response.json()["error"]["param"].startswith(name), (name, value, response.text)
