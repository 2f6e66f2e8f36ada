"""What kinds' code costs a worker: planning jobs, and judging outputs of random tokens, as those of `bench service`.

    python -m benchmarks.judging --tokenizer FOLDER [--jobs 700] [--parameters N]

Per hundred jobs of the four kinds, processor time per job, and a digest of what was decided, to compare two trees. A
process compiles the patterns of a language when it first needs them: the first hundreds take longer.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from benchmarks.command_line import CommandLine, positive
from benchmarks.host_drain import EOS, Host, first_calls
from benchmarks.results import table
from thothy_ai.demo.backlog import backlog
from thothy_ai.demo.first_call import KIND, FirstCall
from thothy_ai.jobs import Context, End, Output, Request, Verdict
from thothy_ai.jobs.api.plan import Outputs

_ROWS = 1024
_AT_ONCE = 100
HEADER = "jobs", "planning, ms", "judging, ms", "digest"

Answered = tuple[FirstCall, Outputs]


def answered(jobs: Sequence[Request], tokenizer: PreTrainedTokenizerFast, context: Context) -> list[Answered]:
    """The jobs, each with outputs of random tokens that match the schemas of its first calls."""
    host = Host(tokenizer, _ROWS, context)
    requests = host.requests(jobs)
    outputs = host.drain("", requests).outputs
    texts = (tokenizer.decode([token for token in outputs[each.id] if token != EOS]) for each in requests)
    return [
        (
            FirstCall.of(job),
            tuple(Output(text, End.COMPLETE) for text in islice(texts, len(list(first_calls(job, context))))),
        )
        for job in jobs
    ]


def measured(these: Sequence[Answered], context: Context) -> tuple[str, ...]:
    """A row of the table."""
    began = time.process_time()
    planned = [next(KIND.plan(job, context)) for job, _ in these]
    middle = time.process_time()
    judged = [judge(job, outputs, context) for job, outputs in these]
    seconds = middle - began, time.process_time() - middle
    digest = hashlib.sha256(repr((planned, judged)).encode()).hexdigest()
    return (f"{len(these)}", *(f"{1e3 * each / len(these):.1f}" for each in seconds), digest[:12])


def judge(job: FirstCall, outputs: Outputs, context: Context) -> Verdict:
    """As a worker does, which replays the plan from its beginning."""
    plan = KIND.plan(job, context)
    next(plan)
    try:
        plan.send(outputs)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the plan ends after its first calls")


def main() -> None:
    """Print a table."""
    parser = CommandLine("judging", __doc__)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--jobs", type=positive(int), default=700)
    parser.add_argument("--parameters", type=positive(int), default=0, help="of the model; default: a large one")
    options = parser.parse_args()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(options.tokenizer / "tokenizer.json"))
    context = Context(parameters=options.parameters)
    these = answered(backlog(options.jobs), tokenizer, context)
    rows = [measured(these[first : first + _AT_ONCE], context) for first in range(0, len(these), _AT_ONCE)]
    print(table(HEADER, rows))


if __name__ == "__main__":
    main()
