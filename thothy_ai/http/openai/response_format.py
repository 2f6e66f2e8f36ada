"""`response_format`: the JSON schema that an answer must match."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from thothy_ai.http.errors import ApiError
from thothy_ai.http.openai.fields import Body

ANY_OBJECT = '{"type": "object"}'


class SchemaFormat(Body):
    """A named JSON schema. It binds the answer, strict or not."""

    name: str
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """What an answer must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None

    @property
    def schema_text(self) -> str | None:
        """The schema that binds the answer, as JSON; None for a plain one. ApiError where it should be and is not."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return ANY_OBJECT
        if self.json_schema is None or self.json_schema.schema_ is None:
            where = "response_format.json_schema" + ("" if self.json_schema is None else ".schema")
            raise ApiError(400, f"{where} is missing", code="missing_required_parameter", param=where)
        return json.dumps(self.json_schema.schema_, ensure_ascii=False)
