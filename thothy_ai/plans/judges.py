"""`Judges`: a few processes that run kinds' code, so that no validator can stall or end the worker.

    follow ──task──▶ Judges ──socket──▶ judge_process       one task at a time each
           ◀─answer─        ◀─────────                      killed if a task takes too long, and restarted

Threads would not do: a regular expression that backtracks without end holds the interpreter's lock, and nothing can
interrupt it. Processes also judge in parallel. If no process is free, another one is started; meanwhile, the task waits
for whichever process is free first; `FreeJudges` chooses among several tasks or processes. A worker with many processes
starts them before its jobs need them.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from thothy_ai.engine.api.errors import ProtocolError
from thothy_ai.engine.wire.codec import FrameBuffer
from thothy_ai.jobs.api.plan import Early, Outputs
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.plans import metrics
from thothy_ai.plans.advance import Judgement, PlanError, PlannedJob, PlanStep
from thothy_ai.plans.free_judges import FreeJudges
from thothy_ai.plans.judge_messages import (
    ANSWERS,
    TASKS,
    AdvanceTask,
    Answer,
    CompareTask,
    EarlyTask,
    EditTask,
    PlanFailed,
    Rejected,
    StartTask,
    Task,
    TaskFailed,
)
from thothy_ai.queue.edits import CheckedEdit, unchecked

START_SECONDS = 300.0  # a machine may be busy; imports take about one
_END_SECONDS = 1.0  # for a process to end once its socket is closed
WAITING_FACTOR = 6  # a task's limit of elapsed time, as a multiple of its limit of processor time
MAX_DEFAULT_PROCESSES = 12
MIN_PROCESSES = 2  # so that one that hangs does not hold up all jobs
_STARTED_AT_ONCE = 1 / 4  # of the processes that are started early: each computes for two seconds
EDIT_JUDGES = 2  # processes of a server, started at its first edit; two because one can hang
_CHUNK = 2**16  # bytes per read of an answer
_ENDED = "the worker has ended"
T = TypeVar("T")


class JudgeError(Exception):
    """A kind's code hung, ended its process, or raised an error."""


class JudgeEndedError(JudgeError):
    """The judging process ended, possibly for a reason outside the kind's code."""


class Judges:
    """For use on one asyncio loop. `seconds`: a task's limit of processor time. `gates_as_findings` do not reject.

    The number of waiting tasks is bounded by the jobs in flight: each has one task at a time, and one check of an
    unfinished output per call.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        seconds: float,
        processes: int | None = None,
        gates_as_findings: Sequence[RejectionReason] = (),
    ) -> None:
        count = processes or default_processes()
        hash_seed = secrets.randbelow(2**32)  # the same for all processes: any of them can replay a plan
        first = StartTask(tuple(kinds), tuple(sys.path), seconds, tuple(gates_as_findings))
        self._judges = [_Judge(first, hash_seed) for _ in range(count)]
        self._unstarted = list(self._judges)
        self._free: FreeJudges[_Judge] = FreeJudges()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def start_early(self) -> None:
        """Start the processes before tasks need them, and load what validators need, so that later tasks do not wait.

        A task that comes meanwhile starts a process that loads only what the task needs. A worker of `MIN_PROCESSES`
        starts them when a task comes, and takes no memory while it has no jobs.
        """

        async def start_next() -> None:
            while self._unstarted and not self._closed:
                judge = self._unstarted.pop()
                await self._then_free(judge, self._started(judge, warm=True))

        if len(self._judges) > MIN_PROCESSES:
            await asyncio.gather(*(start_next() for _ in range(math.ceil(_STARTED_AT_ONCE * len(self._judges)))))

    async def advance(
        self, job: PlannedJob, answered: Sequence[Outputs], last: PlanStep | None
    ) -> PlanStep | Judgement:
        """`advance`, in another process. `last` is the most recently answered step.

        If the kind hangs or ends its process after the first step, the result is a rejection. Raises `PlanError`.
        """
        try:
            answer = await self._do(AdvanceTask(job, tuple(answered)), job.source_key)
        except JudgeError as error:
            if last is None:
                raise PlanError(reason="kind_error", detail=str(error)) from None
            return Judgement(False, RejectionReason.VALIDATOR_ERROR, str(error), last.locale, last.version)
        match answer:
            case PlanStep() | Judgement():
                return answer
            case PlanFailed():
                raise PlanError(answer.reason, answer.detail)
        raise TypeError(f"expected a step or a judgement, got {answer!r}")

    async def near_duplicate(self, kind: str, body: Any, others: Sequence[Any]) -> Rejection | None:
        """`near_duplicate`, in another process. If the kind fails there, the result is a rejection."""
        try:
            return await self._rejection(CompareTask(kind, body, tuple(others)))
        except JudgeError as error:
            return Rejection(RejectionReason.VALIDATOR_ERROR, str(error))

    async def early_rejection(self, text: str, locale: str | None, early: Early | None) -> Rejection | None:
        """Why an unfinished output is certain to be rejected; None as long as that is not known.

        The language is checked once, as soon as a process is free. The other checks are repeated as the output grows,
        and are left out while no process is free: they save tokens, and must not delay the judging of whole outputs.
        """
        if locale is None and not self._free:
            return None
        with suppress(JudgeError):
            return await self._rejection(EarlyTask(text, locale, early))
        return None

    async def check_edit(self, kind: str, request: Any, body: Mapping[str, Any]) -> CheckedEdit:
        """`check_edit`, in another process. If the checks fail to run, the edit is kept, with that as a finding."""
        try:
            answer = await self._do(EditTask(kind, request, dict(body)))
        except JudgeError as error:
            return CheckedEdit(dict(body), None, [unchecked(str(error))])
        if not isinstance(answer, CheckedEdit):
            raise TypeError(f"expected a checked edit, got {answer!r}")
        return answer

    async def close(self) -> None:
        """End all processes, even in the middle of a task."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(judge.kill() for judge in self._judges))

    async def _rejection(self, task: CompareTask | EarlyTask) -> Rejection | None:
        answer = await self._do(task)
        if not isinstance(answer, Rejected):
            raise TypeError(f"expected a rejection or none, got {answer!r}")
        return answer.rejection

    async def _do(self, task: Task, source: str = "") -> Answer:
        """The answer of the next free process, if possible one that had the task's source before. Raises `JudgeError`.

        If the caller is cancelled before a process is free, the task is dropped; afterwards, the process completes it.
        """
        if self._closed:
            raise JudgeError(_ENDED)
        try:
            frame = TASKS.encode(task)  # before a process is taken: an error here would not give it back
        except ProtocolError as error:
            raise JudgeError(str(error)) from None
        if not self._free and self._unstarted:
            judge = self._unstarted.pop()
            self._then_free(judge, self._started(judge))
        with metrics.JUDGE_TASKS.track_inprogress():
            with metrics.JUDGE_WAIT_SECONDS.time():
                judge = await self._free.get(source)
            return await self._done_by(judge, frame)

    async def _done_by(self, judge: _Judge, frame: bytes) -> Answer:
        if self._closed:
            self._free.put(judge)
            raise JudgeError(_ENDED)
        answer = await asyncio.shield(self._then_free(judge, self._asked(judge, frame)))
        if isinstance(answer, TaskFailed):
            raise JudgeError(answer.error)
        return answer

    def _then_free(self, judge: _Judge, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start work of a process and free the process afterwards, even if the work is cancelled before it begins."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._free.put(judge))
        return task

    async def _started(self, judge: _Judge, *, warm: bool = False) -> None:
        with suppress(JudgeError, OSError):  # the next task starts the process again, and gets the error
            await judge.start(warm=warm)

    async def _asked(self, judge: _Judge, frame: bytes) -> Answer:
        try:
            with metrics.JUDGE_SECONDS.time():
                return await judge.ask(frame)
        except JudgeEndedError:  # try once more: the kernel may have been short of memory
            return await judge.ask(frame)


def default_processes(workers: int = 1) -> int:
    """How many processes each of a machine's workers has. Engines use the other processors."""
    return max(MIN_PROCESSES, min(MAX_DEFAULT_PROCESSES, len(os.sched_getaffinity(0)) * 3 // 4 // workers))


class _Judge:
    """One process. A task starts it if it does not run."""

    def __init__(self, first: StartTask, hash_seed: int) -> None:
        self._first = first
        self._seconds = first.seconds
        self._hash_seed = hash_seed
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def ask(self, frame: bytes) -> Answer:
        """The answer to an encoded task. Raises `JudgeError`, `OSError`."""
        if self._process is None:
            await self.start()
        return await self._answer(frame, self._seconds * WAITING_FACTOR)

    async def kill(self) -> int | None:
        """End the process if it runs. Returns its exit status, as `Popen.returncode`."""
        process, self._process = self._process, None
        if process is None:
            return None
        self._writer.transport.abort()  # drop unsent data: the process may have stopped reading
        with suppress(subprocess.TimeoutExpired):
            return await asyncio.to_thread(process.wait, _END_SECONDS)
        process.kill()
        return await asyncio.to_thread(process.wait)

    async def start(self, *, warm: bool = False) -> None:
        """Start the process. Raises `JudgeError`, `OSError`."""
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(map(os.path.abspath, sys.path))  # the process imports from the same folders as this one
        with theirs:
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            try:
                self._process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
                    [sys.executable, "-P", "-m", "thothy_ai.plans.judge_process", str(theirs.fileno())],
                    env=os.environ | {"PYTHONHASHSEED": str(self._hash_seed), "PYTHONPATH": path},
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            except BaseException:
                self._writer.transport.abort()
                raise
        await self._answer(TASKS.encode(replace(self._first, warm=warm)), START_SECONDS)

    async def _answer(self, frame: bytes, seconds: float) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                self._writer.write(frame)
                await self._writer.drain()
                return ANSWERS.decode(await self._payload())
        except TimeoutError:
            await self.kill()
            raise JudgeError(f"the kind's code did not end within {seconds:g} s") from None
        except ProtocolError as error:  # the kind's plan yielded something other than calls
            await self.kill()
            raise JudgeError(str(error)) from None
        except OSError:
            code = await self.kill()
            if code == -signal.SIGPROF:
                raise JudgeError(f"the kind's code did not end within {self._seconds:g} s of processor time") from None
            raise JudgeEndedError(f"the kind's code ended its process, with exit status {code}") from None
        except BaseException:
            await self.kill()
            raise

    async def _payload(self) -> bytes:
        """The payload of the next frame. No other frame follows: the process gets one task at a time."""
        buffer = FrameBuffer()
        while chunk := await self._reader.read(_CHUNK):
            if payloads := buffer.feed(chunk):
                return payloads[0]
        raise ConnectionResetError("the process has ended")
