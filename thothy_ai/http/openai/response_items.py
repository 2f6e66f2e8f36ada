"""The output of a response: thoughts, text and calls as items, and the events of their growth."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, Final

from thothy_ai.engine.api import CallDelta
from thothy_ai.http.openai.tools import new_call_id

Json = dict[str, Any]
ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # schemas have integers of any size


class Events:
    """Numbers the events of a response."""

    def __init__(self) -> None:
        self._number = 0

    def make(self, kind: str, **fields: Any) -> bytes:
        """One event of this kind."""
        body = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        data = ENCODE(body)
        return f"event: {kind}\ndata: {data}\n\n".encode()


class OutputItems:
    """The items of one response. The last item is open until another begins."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.items: list[Json] = []
        self._call = -1  # the number of the open call

    def gain(self, thoughts: str, said: str, calls: Sequence[CallDelta], logprobs: list[Json]) -> bytes:
        """The events of new output."""
        events = []
        if thoughts:
            events += [self._begin("reasoning"), self._part_gains("reasoning_text", thoughts)]
        if said or logprobs:
            events += [self._begin("message"), self._part_gains("output_text", said, logprobs)]
        for call in calls:
            if call.index > self._call:
                self._call = call.index
                begun = {"call_id": new_call_id(), "name": call.name, "arguments": ""}
                events += [self.close("completed"), self._open("fc", {"type": "function_call", **begun})]
            if call.arguments:
                self.items[-1]["arguments"] += call.arguments
                events.append(self._event("response.function_call_arguments.delta", delta=call.arguments))
        return b"".join(events)

    def close(self, status: str) -> bytes:
        """The events that end the open item, if there is one."""
        if not self.items or self.items[-1]["status"] != "in_progress":
            return b""
        item, events = self.items[-1], list[bytes]()
        item["status"] = status
        if item["type"] == "function_call":
            fields = {"name": item["name"], "arguments": item["arguments"]}
            events.append(self._event("response.function_call_arguments.done", **fields))
        else:
            [part] = item["content"]
            logprobs = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
            events += [
                self._event(f"response.{part['type']}.done", content_index=0, text=part["text"], **logprobs),
                self._event("response.content_part.done", content_index=0, part=part),
            ]
        at = len(self.items) - 1
        return b"".join([*events, self._events.make("response.output_item.done", output_index=at, item=item)])

    def _begin(self, kind: str) -> bytes:
        """Open an item of text, unless one of this kind is open."""
        if self.items and (self.items[-1]["type"], self.items[-1]["status"]) == (kind, "in_progress"):
            return b""
        closed = self.close("completed")
        if kind == "message":
            part: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            opened = self._open("msg", {"type": kind, "role": "assistant", "content": []})
        else:
            part = {"type": "reasoning_text", "text": ""}
            opened = self._open("rs", {"type": kind, "summary": [], "content": []})
        added = self._event("response.content_part.added", content_index=0, part=part)
        self.items[-1]["content"].append(part)
        return closed + opened + added

    def _open(self, prefix: str, item: Json) -> bytes:
        self.items.append({"id": f"{prefix}_{secrets.token_hex(16)}", "status": "in_progress", **item})
        at = len(self.items) - 1
        return self._events.make("response.output_item.added", output_index=at, item=self.items[-1])

    def _part_gains(self, kind: str, text: str, logprobs: list[Json] | None = None) -> bytes:
        part = self.items[-1]["content"][0]
        part["text"] += text
        if logprobs:
            part["logprobs"] += logprobs
        listed = {"logprobs": logprobs or []} if kind == "output_text" else {}
        return self._event(f"response.{kind}.delta", content_index=0, delta=text, **listed)

    def _event(self, kind: str, **fields: Any) -> bytes:
        """An event of the last item."""
        at = len(self.items) - 1
        return self._events.make(kind, item_id=self.items[-1]["id"], output_index=at, **fields)
