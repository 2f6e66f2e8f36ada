"""The kind `chat`: a request of `/v1/chat/completions`, whose artifact is the API's answer."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from thothy_ai.jobs.api.kind import JobKind
from thothy_ai.jobs.plans.answers import ApiAnswer, ApiRequest, asked

ROUTE = "/v1/chat/completions"


class Chat(ApiRequest[ApiAnswer]):
    """Answer messages, as `/v1/chat/completions` does; any field of its bodies may be given."""

    messages: Annotated[
        list[dict[str, Any]], Field(min_length=1, description="Messages so far, as the API takes them.")
    ]


KIND = JobKind(
    name="chat",
    request=Chat,
    artifact=ApiAnswer,
    plan=lambda request, _: asked(ROUTE, [request.body]),
    locale=lambda _: "und",  # whichever the messages ask for
    source=lambda request: json.dumps(request.messages[0]),  # most often the instructions that siblings share
    model=lambda request: request.model,
)
