"""`/api/review` and decisions: the artifacts that wait for a person, their current versions, and decisions on them."""

from __future__ import annotations

from sqlalchemy import Engine

from thothy_ai.admin import review
from thothy_ai.errors import (
    DecisionConflictError,
    InvalidDecisionError,
    NothingToDecideError,
    UnknownJobError,
    UnreadableArtifactError,
)
from thothy_ai.http.api.jobs import JobOperations
from thothy_ai.http.api.models import NewDecision, ReviewQuery, VersionAnswer, WaitingAnswer, WaitingList
from thothy_ai.http.api.operations import Operation, OperationCall, missing
from thothy_ai.http.errors import ApiError
from thothy_ai.plans.judges import Judges
from thothy_ai.producer.decisions import CurrentVersion, Decision


class ReviewOperations:
    """The operations for reviewers. `database` is read on threads; `judges` check edits."""

    def __init__(self, jobs: JobOperations, database: Engine, judges: Judges) -> None:
        self._jobs, self._database, self._judges = jobs, database, judges
        artifact = "/api/jobs/{id}/artifact"
        self.operations = (
            Operation(
                "GET", "/api/review", "Artifacts that wait for a person, the earliest deadline first.", "read",
                self.list_, query=ReviewQuery, answer=WaitingList,
            ),
            Operation(
                "GET", artifact, "The current version of a job's artifact, with its findings and decisions.", "read",
                self.show, answer=VersionAnswer,
            ),
            Operation(
                "POST", "/api/jobs/{id}/decisions", "Decide on a version. 409 if somebody has.", "review", self.decide,
                body=NewDecision, answer=VersionAnswer,
            ),
        )  # fmt: skip

    async def list_(self, call: OperationCall) -> WaitingList:
        wanted: ReviewQuery = call.query
        found = await self._jobs.read(
            lambda: review.review_queue(
                self._database,
                wanted.review,
                clean_since=wanted.clean_since,
                kind=wanted.kind,
                tenant=call.caller.tenant,
                limit=wanted.limit,
            )
        )
        return WaitingList(data=[WaitingAnswer.model_validate(each) for each in found])

    async def show(self, call: OperationCall) -> VersionAnswer:
        tenant = call.caller.tenant
        try:
            current = await self._jobs.read(lambda: review.current_version(self._database, call.id, tenant))
        except UnknownJobError:
            raise missing("job", call.id) from None
        return VersionAnswer.model_validate(current)

    async def decide(self, call: OperationCall) -> VersionAnswer:
        wanted: NewDecision = call.body
        job_id, tenant, key = call.id, call.caller.tenant, call.caller.key
        by = f"{wanted.by} ({key})" if wanted.by and key else wanted.by or key or ""  # the person whom a program names

        def current() -> tuple[Decision, CurrentVersion]:
            decision = Decision(wanted.action, by, wanted.note, wanted.body, wanted.voice)
            return decision, review.current_version(self._database, job_id, tenant)

        try:
            decision, now = await self._jobs.read(current)
            edit = decision.body
            checked = None if edit is None else await self._judges.check_edit(now.kind, now.request, edit)
            made = await self._jobs.read(
                lambda: review.decide(self._database, job_id, wanted.version, decision, checked, tenant)
            )
            return VersionAnswer.model_validate(made)
        except UnknownJobError:
            raise missing("job", job_id) from None
        except InvalidDecisionError as error:
            raise ApiError(400, str(error), code="invalid_value", param=error.field) from None
        except DecisionConflictError as error:
            raise ApiError(409, str(error), code="decided", param="version") from None
        except (NothingToDecideError, UnreadableArtifactError) as error:
            raise ApiError(409, str(error), code="nothing_to_decide") from None
