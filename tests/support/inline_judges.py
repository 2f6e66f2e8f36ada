"""`InlineJudges`: judges without processes of their own, which take longer to start than most tests of jobs last."""

from __future__ import annotations

from collections.abc import Sequence

from thothy_ai.jobs import registry
from thothy_ai.plans import judge_process, judging, metrics
from thothy_ai.plans.judges import JudgeError, Judges, _Judge
from thothy_ai.plans.judging import LENGTH, Fields


class InlineJudges(Judges):
    """Does what a judge's process does, with what crosses the socket. Nothing may hang or end its process here."""

    def __init__(self, kinds: Sequence[str], seconds: float, processes: int | None = None) -> None:
        super().__init__(kinds, seconds, processes)
        registry.load_extra(kinds)

    async def _done_by(self, judge: _Judge, task: Fields) -> Fields:
        self._free.put_nowait(judge)
        with metrics.JUDGE_SECONDS.time():
            answer = _crossed(_answered(_crossed(task)))
        if "failure" in answer:
            raise JudgeError(answer["failure"])
        return answer


def _answered(task: Fields) -> Fields:
    try:
        return judge_process._done(task)
    except Exception as error:  # noqa: BLE001 - as the process does
        return {"failure": repr(error)}


def _crossed(fields: Fields) -> Fields:
    return judging.decode(judging.encode(fields)[LENGTH.size :])
