"""Writes the files of a batch that has ended: its answers, and why other requests have none."""

from __future__ import annotations

import json
from typing import Any, BinaryIO
from uuid import UUID, uuid4

from thothy_ai.batches.lines import not_served
from thothy_ai.db.states import JobState

CUT_SHORT = {
    "batch_expired": "the request could not be run before the batch expired",
    "batch_cancelled": "the batch was cancelled before the request was run",
    "batch_failed": "the batch could not go on: its errors say why",
    "job_missing": "the request has no job: it was removed, or no engine had ever served the model when it was due",
}


class ResultFile:
    """A file that is written line by line."""

    def __init__(self, content: BinaryIO) -> None:
        self.content = content
        self.lines = 0

    def write(self, request: UUID, custom_id: str, response: Any, error: Any) -> None:
        """One request: the API's response, whatever its status, or why there is none."""
        line = {"id": f"batch_req_{request.hex}", "custom_id": custom_id, "response": response, "error": error}
        self.content.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self.lines += 1

    @property
    def size(self) -> int:
        """Size of the written content, in bytes."""
        return self.content.tell()


class Results:
    """Sorts the requests of a batch into its two files, and counts."""

    def __init__(self, output: BinaryIO, error: BinaryIO) -> None:
        self.output, self.error = ResultFile(output), ResultFile(error)
        self.completed = self.failed = self.expired = 0
        self.usage = {"input": 0, "cached": 0, "output": 0, "reasoning": 0}

    def add(self, row: Any, custom_id: str) -> None:
        """One job, as `batches/results` reads it."""
        match JobState(row.state):
            case JobState.SUCCEEDED:
                self.completed += 1
                usage = row.body["usage"]
                read, wrote = ("input", "output") if "input_tokens" in usage else ("prompt", "completion")
                self.usage["input"] += usage[f"{read}_tokens"]
                self.usage["output"] += usage[f"{wrote}_tokens"]
                self.usage["cached"] += (usage.get(f"{read}_tokens_details") or {}).get("cached_tokens", 0)
                self.usage["reasoning"] += (usage.get(f"{wrote}_tokens_details") or {}).get("reasoning_tokens", 0)
                self.output.write(row.id, custom_id, _response(row.id, 200, row.body), None)
            case JobState.DEAD if row.body is not None and "error" in row.body:  # the API's error response
                self.failed += 1
                envelope = {"error": row.body["error"]}
                self.error.write(row.id, custom_id, _response(row.id, row.body["status"], envelope), None)
            case JobState.DEAD:
                self.failed += 1
                self.error.write(row.id, custom_id, None, {"code": row.reason, "message": row.detail or row.reason})
            case state:
                self.cut_short(row.id, custom_id, "batch_expired" if state is JobState.EXPIRED else "batch_cancelled")

    def cut_short(self, job_id: UUID | None, custom_id: str, code: str) -> None:
        """A request that was not run."""
        self.expired += code == "batch_expired"
        self.failed += code == "job_missing"
        self.error.write(job_id or uuid4(), custom_id, None, {"code": code, "message": CUT_SHORT[code]})

    def not_served(self, custom_id: str, model: str) -> None:
        """A request whose model or adapter no engine serves, with the API's refusal."""
        self.failed += 1
        refused = {"message": not_served(model), "type": "invalid_request_error", "param": "model"}
        body = {"error": refused | {"code": "model_not_found"}}
        request = uuid4()  # there is no job
        self.error.write(request, custom_id, _response(request, 404, body), None)

    def usage_object(self) -> dict[str, Any]:
        """The usage of all answers, as the batch object reports it."""
        used = self.usage
        return {
            "input_tokens": used["input"],
            "input_tokens_details": {"cached_tokens": used["cached"]},
            "output_tokens": used["output"],
            "output_tokens_details": {"reasoning_tokens": used["reasoning"]},
            "total_tokens": used["input"] + used["output"],
        }


def _response(request: UUID, status: int, body: Any) -> dict[str, Any]:
    return {"status_code": status, "request_id": f"req_{request.hex}", "body": body}
