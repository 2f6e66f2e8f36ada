"""The enumerations of the queue's tables. The schema's CHECKs are built from these."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """Where a job is. The last four are terminal."""

    QUEUED = "queued"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        """Whether a job in this state is finished for good."""
        return self in TERMINAL


TERMINAL = frozenset({JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED})


class EngineState(StrEnum):
    """What an engine process is doing."""

    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"  # it accepts nothing new
    ENDED = "ended"


class EndReason(StrEnum):
    """Why an engine session ended."""

    STOPPED = "stopped"  # it exited with status 0
    FAILED = "failed"  # it exited with another status
    KILLED = "killed"  # by a signal
    SILENT = "silent"  # it sent no heartbeat; it ended at its last one


class Outcome(StrEnum):
    """The end of one attempt, as its row records it."""

    SUCCEEDED = "succeeded"
    REJECTED = "rejected"  # output came, a validator refused it
    FAILED = "failed"
    LOST = "lost"  # its lease ran out, or its engine died
    RELEASED = "released"  # given back without a failure, for example by a shutdown
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class ArtifactVerdict(StrEnum):
    """The validators' verdict on an output."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"


class ReviewState(StrEnum):
    """What a succeeded job needs from a person, or what the person decided. None: nothing."""

    NEEDS_REVIEW = "needs_review"  # it passed all gates, and has findings
    NEEDS_EDIT = "needs_edit"  # no attempt was accepted; the best draft is kept
    HELD = "held"
    APPROVED = "approved"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"  # it follows a text that has changed since


class Action(StrEnum):
    """What a person decides on a version of an artifact."""

    APPROVE = "approve"
    EDIT = "edit"  # their text is the next version, which again waits for a decision
    REJECT = "reject"
    SEND_BACK = "send_back"  # the model writes the next version, and is shown the note
    HOLD = "hold"
    REOPEN = "reopen"  # an approved or rejected artifact waits again


class Event(StrEnum):
    """What a job's history records: unusual events only."""

    RETRIED = "retried"
    LOST = "lost"
    REPUBLISHED = "republished"
    DEAD = "dead"
    REJECTED = "rejected"
    KEPT = "kept"  # no attempt follows; a person can edit the best draft
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    RELEASED = "released"
    REDRIVEN = "redriven"
    CHANGED = "changed"


class Notify(StrEnum):
    """When a webhook is called: at the end of each job, or once, at the end of all of them."""

    JOB = "job"
    BATCH = "batch"


class FilePurpose(StrEnum):
    """What a file of OpenAI's API is for: the requests of a batch, or its answers."""

    BATCH = "batch"
    BATCH_OUTPUT = "batch_output"


class BatchStatus(StrEnum):
    """Where a batch of OpenAI's API stands; the first four in this order."""

    VALIDATING = "validating"
    FAILED = "failed"  # its input is not valid: nothing has run
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"  # all requests have ended, and its files are being written
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


# The reasons that the queue and its workers store of jobs and attempts, besides those of rejections
# (`jobs.RejectionReason`) and the codes of the engine's errors. docs/reference/errors.md describes them.
REASONS = frozenset(
    {
        "adapter_changed",
        "answer_lost",
        "budget_spent",
        "connection_lost",
        "deadline",
        "engine_aborted",
        "engine_away",
        "engine_killer",
        "engine_lost",
        "invalid_job",
        "kind_error",
        "lease_lost",
        "machine_lost",
        "not_alone",
        "shutdown",
        "superseded",
        "unknown_kind",
        "unstorable",
        "worker_error",
        "worker_lost",
    }
)
