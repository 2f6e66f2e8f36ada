"""`InlineJudges`: judges without processes of their own, which take longer to start than most tests of jobs last."""

from __future__ import annotations

from collections.abc import Sequence

from thothy_ai.jobs import RejectionReason, registry
from thothy_ai.jobs.checks.gates import leave_to_people
from thothy_ai.plans import judge_process, metrics
from thothy_ai.plans.judge_messages import ANSWERS, TASKS, Answer, TaskFailed
from thothy_ai.plans.judges import JudgeError, Judges, _Judge

HEADER = 4  # bytes of a frame before its payload


class InlineJudges(Judges):
    """Does what a judge's process does, with what crosses the socket. Nothing may hang or end its process here."""

    def __init__(
        self,
        kinds: Sequence[str],
        seconds: float,
        processes: int | None = None,
        gates_as_findings: Sequence[RejectionReason] = (),
    ) -> None:
        super().__init__(kinds, seconds, processes, gates_as_findings)
        registry.load_extra(kinds)
        leave_to_people(gates_as_findings)

    async def start_early(self) -> None:
        """No process is needed."""

    async def _done_by(self, judge: _Judge, frame: bytes) -> Answer:
        self._free.put(judge)
        with metrics.JUDGE_SECONDS.time():
            answer = ANSWERS.decode(_answered(frame[HEADER:])[HEADER:])
        if isinstance(answer, TaskFailed):
            raise JudgeError(answer.error)
        return answer


def _answered(payload: bytes) -> bytes:
    try:
        return ANSWERS.encode(judge_process.answer_to(TASKS.decode(payload)))
    except Exception as error:  # noqa: BLE001 - as the process does
        return ANSWERS.encode(TaskFailed(repr(error)))
