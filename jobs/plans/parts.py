"""`InParts`: the plan of an artifact that is written, judged and, where necessary, written again part by part.

    write      one call for the whole artifact, or one per part: a small model does better with short tasks, and writes
               in stages: if a gate still rejects a part after its repair, those of later stages are not written
    judge      the checks say which parts are bad, or in doubt
    repair     these parts are written again, with their faults named, once; whichever is better is kept
    verify     optionally, the model compares the claims with the source (`plans/verification`); bad ones are repaired

A part is a top-level field of the artifact or an item of a list in it: `("title",)`, `("key_points", 1)`. Calls of one
step run side by side, and all begin with the source, whose KV they share.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple

from pydantic import ValidationError
from typing_extensions import TypeVar

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.plan import Call, Calls, Context, End, Output, Outputs, Plan
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Finding, Rejection, RejectionReason, Verdict, Verification, VerifiedClaim
from thothy_ai.jobs.checks.gates import is_gate
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.documents import condensed, shorter
from thothy_ai.jobs.plans.judging import findings_of, gate_in, severity, verdict, worst
from thothy_ai.jobs.plans.outputs import object_in, rejection_of
from thothy_ai.jobs.plans.verification import ArtifactClaim, doubt, verify
from thothy_ai.jobs.schema import has_types

R = TypeVar("R", bound=WritingRequest)
R_co = TypeVar("R_co", bound=WritingRequest, covariant=True)
A = TypeVar("A", bound=Artifact, default=Artifact)
Part = tuple[str | int, ...]
Values = Mapping[str, Any]

MAX_SHORTENINGS = 4  # of a source whose prompt the engine refuses


class PartFault(NamedTuple):
    """A fault of a part."""

    part: Part
    rejection: Rejection

    @property
    def located(self) -> Rejection:
        """The rejection with the path of its field: the part itself, or a field that the check named inside it."""
        return self.rejection if self.rejection.part else self.rejection.at(*self.part)


class PartCall(NamedTuple):
    """A call that writes parts. Its output is an object with one key per part, named by `key_of`.

    The calls of a later `stage` are made only if no gate rejects the parts of earlier stages.
    """

    call: Call
    parts: tuple[Part, ...]
    stage: int = 0


class Writing(NamedTuple, Generic[R_co]):
    """The input of a kind's functions: the request, the source (condensed to fit the context), and the context."""

    request: R_co
    source: str
    context: Context


def key_of(part: Part) -> str:
    """The key of a part in an output: `key_points_2` for the second key point."""
    return "_".join(str(step + 1) if isinstance(step, int) else step for step in part)


@dataclass
class _Draft:
    """The parts written so far. Owned by one run of a plan."""

    values: dict[str, Any] = field(default_factory=dict)
    missing: dict[Part, Rejection] = field(default_factory=dict)
    repaired: set[Part] = field(default_factory=set)  # parts that were written again; doubts about them may remain
    given_up: Sequence[PartFault] = ()  # why the rest was not written
    too_long: bool = False  # whether a prompt was refused

    def take(self, piece: PartCall, output: Output) -> None:
        """Insert the parts of an output into the draft, or record why there are none."""
        found, rejection = object_in(output)
        self.too_long |= output.end is End.PROMPT_TOO_LONG
        for part in piece.parts:
            key = key_of(part)
            if key in found and not has_types(found[key], piece.call.schema["properties"].get(key, {})):
                self.missing[part] = Rejection(RejectionReason.OFF_SCHEMA, f"{key}: is of another type than asked for")
            elif key in found:
                self.missing.pop(part, None)
                if len(part) == 1:
                    self.values[str(part[0])] = found[key]
                else:
                    items = self.values.setdefault(str(part[0]), [])
                    items[int(part[1]) : int(part[1]) + 1] = [found[key]]
            elif self.at(part) is None:
                self.missing[part] = rejection or Rejection(RejectionReason.OFF_SCHEMA, f"{key_of(part)}: is missing")

    def at(self, part: Part) -> Any:  # noqa: ANN401  JSON
        """The value of a part; None if it is missing."""
        value: Any = self.values
        for step in part:
            try:
                value = value[step]
            except (KeyError, IndexError):
                return None
        return value


Judge = Callable[[Writing[R], _Draft], list[PartFault]]


@dataclass(frozen=True)
class InParts(Generic[R, A]):
    """A plan in parts.

    `write` returns the first calls; `rewrite` the calls for faulty parts, given the artifact so far. `faults` judges
    the existing parts. `correct` makes corrections that need no model. `fewest` is the minimum number of items per
    list: bad items beyond it are dropped, and a person who edits the artifact may drop more. `claims` lists the claims
    for verification. `part_faults` judges the parts of one stage before the next is written.
    """

    artifact: type[A]
    write: Callable[[Writing[R]], Sequence[PartCall]]
    rewrite: Callable[[Writing[R], Values, Sequence[PartFault]], Sequence[PartCall]]
    faults: Callable[[R, Values], Iterable[PartFault]]
    claims: Callable[[R, Values], Sequence[tuple[Part, ArtifactClaim]]]
    fewest: Callable[[R], Mapping[str, int]] = lambda _: {}
    correct: Callable[[Writing[R], dict[str, Any]], dict[str, Any]] = lambda _, values: values
    part_faults: Callable[[R, Values], Iterable[PartFault]] = lambda *_: ()

    def __call__(self, request: R, context: Context) -> Plan:
        """Write the parts, repair what is wrong, and have the result verified if the request says so."""
        writing, draft = yield from self._begun(request, context)
        faults = draft.given_up or self._judged(writing, draft)
        if faults and not draft.given_up:
            faults = yield from self._repaired(writing, draft, faults, self._judged)
        found = [fault.located for fault in faults]
        try:
            artifact = self.artifact.model_validate(draft.values)
        except ValidationError:
            first = worst(found, request.locale) or Rejection(RejectionReason.OFF_SCHEMA, "output: is not whole")
            findings = findings_of(found, draft.values, request.locale)
            return Verdict.reject(first, findings=findings, draft=draft.values)
        judged = verdict(artifact, found, request.locale)
        if not (judged.accepted and request.verification):
            return judged
        return (yield from self._verified(writing, draft, faults))

    def checks(self, request: R, artifact: A) -> Iterator[Rejection]:
        """Faults and doubts of a whole artifact."""
        return (fault.located for fault in self.faults(request, artifact.model_dump(mode="json")))

    def _begun(self, request: R, context: Context) -> Generator[Calls, Outputs, tuple[Writing[R], _Draft]]:
        """The last attempt's artifact, if part of it can be kept; otherwise a new one."""
        earlier = context.previous.keepable if context.previous else None
        if earlier is not None and earlier.keys() >= self.artifact.model_fields.keys():
            draft = _Draft(deepcopy(dict(earlier)))
            faults = self._judged(Writing(request, request.source, context), draft)
            if 0 < len({fault.part[0] for fault in faults}) < len(self.artifact.model_fields):
                source = yield from condensed(request.source, context)
                return Writing(request, source, context), draft
        for _ in range(MAX_SHORTENINGS):
            source = yield from condensed(request.source, context)
            writing, draft = Writing(request, source, context), _Draft()
            yield from self._in_stages(writing, draft)
            if not draft.too_long:
                break
            context = shorter(context)  # a part's prompt was refused
        return writing, draft

    def _in_stages(self, writing: Writing[R], draft: _Draft) -> Generator[Calls, Outputs, None]:
        """Write stage after stage, as long as no gate rejects the parts so far, or their repair passes."""
        context, locale = writing.context, writing.request.locale
        calls = [each._replace(call=retries.adapted(each.call, context, locale)) for each in self.write(writing)]
        first, *later = sorted({each.stage for each in calls})
        yield from _answers(draft, [each for each in calls if each.stage == first])
        for stage in later:
            if draft.too_long:
                break
            faults = self._so_far(writing, draft)
            if faults:
                faults = yield from self._repaired(writing, draft, faults, self._so_far)
            if gate_in((fault.rejection for fault in faults), locale):
                draft.given_up = faults
                break
            yield from _answers(draft, [each for each in calls if each.stage == stage])

    def _so_far(self, writing: Writing[R], draft: _Draft) -> list[PartFault]:
        draft.values = self.correct(writing, draft.values)
        return [*self._missing(draft), *self.part_faults(writing.request, draft.values)]

    def _repaired(
        self, writing: Writing[R], draft: _Draft, faults: Sequence[PartFault], judge: Judge[R]
    ) -> Generator[Calls, Outputs, list[PartFault]]:
        """Write the faulty parts again, doubtful ones only once. Returns the faults of the better draft."""
        locale = writing.request.locale
        asked = [each for each in faults if is_gate(each.rejection.reason, locale) or each.part not in draft.repaired]
        values, missing = deepcopy(draft.values), dict(draft.missing)
        remaining = yield from self._rewritten(writing, draft, asked, judge)
        before, after = (severity((each.rejection for each in found), locale) for found in (faults, remaining))
        if after <= before:
            return remaining
        draft.values, draft.missing = values, missing
        return list(faults)

    def _rewritten(
        self, writing: Writing[R], draft: _Draft, faults: Sequence[PartFault], judge: Judge[R]
    ) -> Generator[Calls, Outputs, list[PartFault]]:
        """Write these parts again, if the kind can. Returns the faults of the new draft."""
        yield from _answers(draft, self.rewrite(writing, deepcopy(draft.values), faults) if faults else ())
        draft.repaired.update(each.part for each in faults)
        return judge(writing, draft)

    def _judged(self, writing: Writing[R], draft: _Draft) -> list[PartFault]:
        """The faults of a draft, after corrections without a model and without surplus bad items."""
        request = writing.request
        draft.values = self.correct(writing, draft.values)
        found = [*self._missing(draft), *self.faults(request, draft.values)]
        dropped = False
        for name, least in self.fewest(request).items():
            bad = {fault.part[1] for fault in found if len(fault.part) > 1 and fault.part[0] == name}
            items = draft.values.get(name, [])
            if bad and len(items) - len(bad) >= least:
                draft.values[name] = [item for number, item in enumerate(items) if number not in bad]
                draft.missing = {part: why for part, why in draft.missing.items() if part[0] != name}
                dropped = True
        if dropped:
            found = [*self._missing(draft), *self.faults(request, draft.values)]
        for name, least in self.fewest(request).items():
            if 0 < (count := len(draft.values.get(name, ()))) < least:
                few = f"{count} {name.replace('_', ' ')}, fewer than {least}"
                found.append(PartFault((name,), Rejection(RejectionReason.TOO_SHORT, few)))
        if not gate_in((fault.rejection for fault in found), request.locale):
            try:
                self.artifact.model_validate(draft.values)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                found.append(PartFault(tuple(first["loc"])[:2] or ("artifact",), rejection_of(error)))
        return found

    def _missing(self, draft: _Draft) -> Iterator[PartFault]:
        return (PartFault(part, rejection) for part, rejection in draft.missing.items())

    def _verified(self, writing: Writing[R], draft: _Draft, faults: Sequence[PartFault]) -> Plan:
        """Verify the claims, and write doubtful parts once more. Remaining doubts become findings."""
        known: dict[str, VerifiedClaim] = {}
        locale = writing.request.locale
        doubts = yield from self._doubts(writing, draft, known)
        if doubts:
            before = deepcopy(draft.values)
            asked = [PartFault(part, Rejection(found.reason, found.detail)) for part, found in doubts]
            remaining = yield from self._rewritten(writing, draft, asked, self._judged)
            if gate_in((fault.rejection for fault in remaining), locale):
                draft.values = before  # a doubt is better than a gate's rejection
            else:
                faults, doubts = remaining, (yield from self._doubts(writing, draft, known))
        current = [known[claim.text] for _, claim in self.claims(writing.request, draft.values)]
        artifact, found = self.artifact.model_validate(draft.values), [fault.located for fault in faults]
        return verdict(artifact, found, locale, Verification(tuple(current)), tuple(each for _, each in doubts))

    def _doubts(
        self, writing: Writing[R], draft: _Draft, known: dict[str, VerifiedClaim]
    ) -> Generator[Calls, Outputs, list[tuple[Part, Finding]]]:
        """The parts with claims in doubt; claims that are not `known` yet are verified first."""
        request, context = writing.request, writing.context
        claims = self.claims(request, draft.values)
        new = [claim for _, claim in claims if claim.text not in known]
        known |= zip((claim.text for claim in new), (yield from verify(new, context, writing.source)), strict=True)
        found = ((part, doubt(claim, known[claim.text], request.source, context)) for part, claim in claims)
        return [(part, finding) for part, finding in found if finding]


def _answers(draft: _Draft, pieces: Sequence[PartCall]) -> Generator[Calls, Outputs, Outputs]:
    if not pieces:
        return ()
    outputs = yield tuple(piece.call for piece in pieces)
    for piece, output in zip(pieces, outputs, strict=True):
        draft.take(piece, output)
    return outputs
