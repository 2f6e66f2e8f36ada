"""Checks that a kind, a reason or an engine exists, because a misspelt filter would silently match nothing.

Each function returns a sentence about the first unknown name; None if all are known. `in_use` reads the names that jobs
have, which can take long. It is called only for names that are not known otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlalchemy import Engine

from thothy_ai.admin.filters import engine_names
from thothy_ai.db.states import REASONS
from thothy_ai.engine.api.errors import by_code
from thothy_ai.jobs import RejectionReason, registry
from thothy_ai.producer.drafts import load_kinds
from thothy_ai.settings import Settings


def unknown_kind(settings: Settings, kinds: Sequence[str], in_use: Callable[[], Iterable[str]]) -> str | None:
    """A kind is known if it is registered here or in use."""
    if not kinds:
        return None
    load_kinds(settings)
    missing = [kind for kind in kinds if kind not in registry.names()]
    return _first_unknown(missing, [*registry.names(), *in_use()] if missing else ())


def unknown_reason(reasons: Sequence[str], in_use: Callable[[], Iterable[str]]) -> str | None:
    """A reason is known if this version stores it or it is in use."""
    ours = {*REASONS, *RejectionReason, *by_code()}
    missing = [reason for reason in reasons if reason not in ours]
    return _first_unknown(missing, [*ours, *in_use()] if missing else ())


def unknown_engine(engine: Engine, name: str) -> str | None:
    """An engine is known if it sent a heartbeat within the last day."""
    known = engine_names(engine)
    if not known:
        return f"{name!r} is not known: no engine has reported within a day"
    return _first_unknown([name], known)


def _first_unknown(names: Sequence[str], known: Sequence[str]) -> str | None:
    listed = ", ".join(sorted(set(known)))
    return next((f"{name!r} is not one of {listed}" for name in names if name not in known), None)
