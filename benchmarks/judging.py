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
from thothy_ai.demo import first_call
from thothy_ai.demo.backlog import backlog
from thothy_ai.demo.first_call import FirstCall
from thothy_ai.jobs import Context, End, Output, Request, registry
from thothy_ai.jobs.plan import Outputs
from thothy_ai.worker.plans import PlannedJob, advance

_ROWS = 1024
_AT_ONCE = 100
HEADER = "jobs", "planning, ms", "judging, ms", "digest"

Answered = tuple[PlannedJob, Outputs]


def answered(jobs: Sequence[Request], tokenizer: PreTrainedTokenizerFast, context: Context) -> list[Answered]:
    """The jobs, each with outputs of random tokens that match the schemas of its first calls."""
    host = Host(tokenizer, _ROWS, context)
    requests = host.requests(jobs)
    outputs = host.drain("", requests).outputs
    texts = (tokenizer.decode([token for token in outputs[each.id] if token != EOS]) for each in requests)
    return [
        (
            PlannedJob("first_call", FirstCall.of(job).model_dump(mode="json"), context),
            tuple(Output(text, End.COMPLETE) for text in islice(texts, len(list(first_calls(job, context))))),
        )
        for job in jobs
    ]


def measured(these: Sequence[Answered]) -> tuple[str, ...]:
    """A row of the table."""
    began = time.process_time()
    planned = [advance(job, []) for job, _ in these]
    middle = time.process_time()
    judged = [advance(job, [outputs]) for job, outputs in these]
    seconds = middle - began, time.process_time() - middle
    digest = hashlib.sha256(repr((planned, judged)).encode()).hexdigest()
    return (f"{len(these)}", *(f"{1e3 * each / len(these):.1f}" for each in seconds), digest[:12])


def main() -> None:
    """Print a table."""
    parser = CommandLine("judging", __doc__)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--jobs", type=positive(int), default=700)
    parser.add_argument("--parameters", type=positive(int), default=0, help="of the model; default: a large one")
    options = parser.parse_args()
    registry.load_extra([first_call.MODULE])
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(options.tokenizer / "tokenizer.json"))
    these = answered(backlog(options.jobs), tokenizer, Context(parameters=options.parameters))
    print(table(HEADER, [measured(these[first : first + _AT_ONCE]) for first in range(0, len(these), _AT_ONCE)]))


if __name__ == "__main__":
    main()
