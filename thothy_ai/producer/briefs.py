"""Stored briefs: replaces their names in requests. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from thothy_ai.errors import EntryError, InvalidJobError
from thothy_ai.jobs import registry
from thothy_ai.jobs.api.brief import Brief
from thothy_ai.jobs.api.requests import PENDING
from thothy_ai.producer.drafts import Draft, validated
from thothy_ai.queue import texts
from thothy_ai.queue.canonical import canonical


def briefed(
    draft: Draft, brief: Brief, row: Mapping[str, Any] | None, first: Mapping[str, Any] | None, tenant: str
) -> Draft:
    """The draft with the stored brief of this row, or that of the `first` request with its key, if it is of this name.

    Raises `InvalidJobError`, naming the draft's entry.
    """
    values = draft.unbriefed.model_dump(mode="json") if draft.unbriefed else {}
    kept = (first or {}).get("brief") or {}
    try:
        if first and kept.get("name") == brief.name and brief.version in {None, kept.get("version")}:
            values["brief"] = kept
            if values["source"] == PENDING:
                values["source"] = first["source"]
        elif row is None or row["body"] is None:
            which = f"version {brief.version}" if brief.version else "brief"
            raise InvalidJobError("brief", f"no {which} is stored under {brief.name!r}; `thothy briefs list` shows all")
        else:
            values["brief"] = {**row["body"], "name": brief.name, "version": row["version"]}
            if values["source"] == PENDING:
                if not row["body"].get("sources"):
                    raise InvalidJobError("source", f"is missing: the brief {brief.name!r} has no sources")
                del values["source"]
        body = canonical(validated(registry.find(draft.kind), values))
    except EntryError as error:
        raise error.at(draft.entry) from None
    return replace(
        draft,
        body=texts.stored(body.request),
        digest=body.digest(tenant),
        source_key=body.source_key,
        unbriefed=None,
    )
