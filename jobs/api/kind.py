"""`JobKind`: a request class, an artifact class and the plan that leads from one to the other, as one frozen value.

A kind has no access to a database or a model: its plan turns a request into calls, and their outputs into a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from types import GenericAlias
from typing import TYPE_CHECKING, Generic

from typing_extensions import TypeVar

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.brief import CheckedModel
from thothy_ai.jobs.api.plan import Context, Plan

SOURCE_KEY_DIGITS = 32
MAX_KV_BUDGET = 2**31 - 1  # tokens
KIND_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")  # part of commands and file names


A = TypeVar("A", bound=Artifact, default=Artifact)
A_co = TypeVar("A_co", bound=Artifact, default=Artifact, covariant=True)

if TYPE_CHECKING:

    class _NamesArtifact(Generic[A_co]):
        """Generic for type checkers only; the class below is what runs."""

else:

    class _NamesArtifact:
        """`Request[X]` is `Request` itself as a base class: pydantic's generics would make another class for each X."""

        __slots__ = ()

        def __class_getitem__(cls, artifact: object) -> GenericAlias:
            return GenericAlias(cls, artifact)


class Request(_NamesArtifact[A_co], CheckedModel):
    """Base class of all requests. Each string is encodable, not blank, and at most `MAX_CHARACTERS` long.

    `class Hook(Request[HookArtifact])` tells type checkers that `Job.result` of a `Hook` is a `HookArtifact`; without
    the brackets, it is an `Artifact`.
    """


R = TypeVar("R", bound=Request)


class Policy(StrEnum):
    """Who has the last word on an artifact."""

    REVIEW = "review"  # a person decides on artifacts with findings, and on the best draft of a rejected job
    PUBLISH = "publish"  # the gates alone decide: findings are recorded, and nothing waits for a person
    STRICT = "strict"  # every check is a gate: each finding rejects


def source_key(source: str) -> str:
    """The key of a source text: 32 hexadecimal digits."""
    return sha256(source.encode()).hexdigest()[:SOURCE_KEY_DIGITS]


@dataclass(frozen=True)
class JobKind(Generic[R, A]):
    """One kind of job.

    `plan` returns the calls for a request and judges their outputs. `source` returns the text that sibling jobs share.
    `version` names the prompts: it is recorded with each artifact, and changes whenever they do. `follow_ups` returns
    the requests to enqueue once an artifact is accepted. `compared` returns the text that must not nearly repeat
    another recent artifact of this kind, siblings included; None: repetition is fine. `model` is the model or alias of
    jobs that name none, or a function that finds it in the request; None: any model. `policy` says who decides on
    artifacts with findings. `kv_budget` is the number of tokens whose KV the engine keeps for a call, for very long
    sources; None: all of them. Raises `ValueError` for an invalid name or budget, and `TypeError` if the request class
    names another artifact class.
    """

    name: str
    request: type[R]
    artifact: type[A]
    plan: Callable[[R, Context], Plan]
    locale: Callable[[R], str]
    source: Callable[[R], str]
    version: str = "1"
    follow_ups: Callable[[R, A], tuple[Request, ...]] = lambda *_: ()
    compared: Callable[[A], str] | None = None
    model: str | Callable[[R], str | None] | None = None
    policy: Policy = Policy.REVIEW
    kv_budget: int | None = None

    def __post_init__(self) -> None:
        if not KIND_NAME.fullmatch(self.name):
            rule = "at most 60 letters, digits, dots, hyphens and underscores, with a letter first"
            raise ValueError(f"{self.name!r} is not the name of a kind: {rule}")
        if self.kv_budget is not None and not (type(self.kv_budget) is int and 0 < self.kv_budget <= MAX_KV_BUDGET):
            raise ValueError(f"kv_budget={self.kv_budget!r} of {self.name} is not a number of tokens, such as 2048")
        for alias in (alias for base in self.request.__mro__ for alias in base.__dict__.get("__orig_bases__", ())):
            origin = alias.__origin__ if isinstance(alias, GenericAlias) else None
            if not (isinstance(origin, type) and issubclass(origin, _NamesArtifact)):
                continue
            for named in alias.__args__:  # the artifact class in the brackets, or a type variable
                if isinstance(named, type) and not issubclass(self.artifact, named):
                    mine, theirs = self.artifact.__name__, named.__name__
                    raise TypeError(
                        f"{self.request.__name__} is a Request[{theirs}], but the kind's artifact is {mine}"
                    )

    def model_of(self, request: R) -> str | None:
        """The model or alias for a job that has this request and names none; None: any model."""
        return self.model(request) if callable(self.model) else self.model

    def parsed(self, values: object) -> R:
        """The request of these JSON values. Fields that only another version knows are ignored, unless the request may
        have any. Raises pydantic's `ValidationError`.
        """
        open_ended = self.request.model_config.get("extra") == "allow"
        return self.request.model_validate(values, extra="allow" if open_ended else "ignore")

    def source_key(self, request: R) -> str:
        """Digest of the source, equal for siblings; jobs with the same key run together and share its KV."""
        return source_key(self.source(request))
