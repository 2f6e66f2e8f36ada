"""What drafts would gain: recorded outputs are written by the engine over a device that is modelled, or on a GPU.

    python -m benchmarks.drafts record FOLDER [--cases 10]      of the bundled model for jobs of the four kinds, and
                                                                labelled texts that people wrote
    python -m benchmarks.drafts replay FOLDER                   prints and records what drafts would gain
    python -m benchmarks.drafts measure FOLDER [--shape llama-8b] [--kind trend_summary] [--rows 16]
                                                                on a GPU: what they do gain

The replay's host is this machine's, timed as it runs; its steps are those of llama-8b in bfloat16 on an H200
(`device_model`). Prompts have been computed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path

from benchmarks.command_line import CommandLine, positive
from benchmarks.device_model import LLAMA
from benchmarks.drafts.measure import AT_ONCE, QUOTING, on_a_gpu
from benchmarks.drafts.measure import HEADER as MEASURED
from benchmarks.drafts.modelled import ModelledDevice
from benchmarks.drafts.recording import KINDS, Recorded, Recorder, Recordings
from benchmarks.drafts.replaying import Replaying, Written
from benchmarks.results import Row, Table, record, table
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.process.resident import keep_what_is_loaded

ROWS = 1, 16, 64
OF_A_KIND = (16,)  # rows
MANY = 64  # outputs of a kind and writer, at most
HEADER = ("outputs", "rows", "tokens a step", "drafts a row", "right", "host, us a row", "gain")
ALL = "all"  # kinds


def drained(
    recordings: Recordings, grammars: GrammarCompiler, records: Sequence[Recorded], at_once: int, *, drafts: bool
) -> tuple[Written, int, float]:
    """What writing these took, in how many steps of a row, and the seconds in which the device waited for the host."""
    device = ModelledDevice(LLAMA)
    build = partial(device.core, recordings.vocab_size, recordings.end, drafts=drafts)
    engine = Replaying(build, grammars, recordings.end, device.now)
    engine.prepare(records)
    rows, idle = device.rows, device.idle
    result = engine.drain(records, at_once).whole
    engine.close()
    return result, device.rows - rows, device.idle - idle


def replayed(
    name: str,
    recordings: Recordings,
    grammars: GrammarCompiler,
    records: Sequence[Recorded],
    rows_at_once: Sequence[int] = ROWS,
) -> list[Row]:
    """What these outputs gain with so many rows at once: cells of `HEADER`."""
    rows = []
    drained(recordings, grammars, records, rows_at_once[0], drafts=False)  # grammars remember what they have computed
    for at_once in rows_at_once:
        plain, plain_steps, _ = drained(recordings, grammars, records, at_once, drafts=False)
        drafted, row_steps, idle = drained(recordings, grammars, records, at_once, drafts=True)
        cells = (
            f"{plain_steps / row_steps:.2f}",
            f"{drafted.drafted_tokens / row_steps:.2f}",
            f"{drafted.accepted_tokens / max(1, drafted.drafted_tokens):.2f}",
            f"{1e6 * idle / row_steps:.0f}",
            f"{plain.seconds / drafted.seconds:.2f}",
        )
        rows.append((name, f"{at_once}", *cells))
    print(table(HEADER, rows), flush=True)
    return rows


def study(folder: Path) -> None:
    """Replay all outputs, kind by kind and mixed, and record the figures."""
    recordings, rows = Recordings(folder), list[Row]()
    grammars = recordings.grammars(recordings.vocab_size)
    keep_what_is_loaded()
    mixed = dict[str, list[Row]]()
    for name, written in writers(recordings).items():
        for kind in KINDS:
            records = of_kind(written, kind)[:MANY]
            rows += replayed(f"{name}, {kind}", recordings, grammars, records, OF_A_KIND) if records else []
        mixed[name] = replayed(f"{name}, all", recordings, grammars, of_kind(written, ALL)[:MANY])
        rows += mixed[name]
    gains = {name: [row[-1] for row in found] for name, found in mixed.items()}
    record(
        "Drafts, replayed",
        "Engine",
        "python -m benchmarks.drafts replay FOLDER",
        [
            (f"llama-8b at 1, 16, 64 rows, times without drafts: {name}", ", ".join(found), "1.1 at 16")
            for name, found in gains.items()
        ],
        tables=[Table("this host, and a modelled H200 with llama-8b in bfloat16", HEADER, rows)],
    )


def of_kind(records: Sequence[Recorded], kind: str) -> list[Recorded]:
    """The outputs of a kind, or those of all kinds in turn."""
    kinds = KINDS if kind == ALL else (kind,)
    by_kind = [[each for each in records if each.kind == one] for one in kinds]
    return [each for in_turn in zip_longest(*by_kind) for each in in_turn if each is not None]


def measured(folder: Path, shape: str, weights: str, writer: str, kinds: Sequence[str], rows: Sequence[int]) -> None:
    """Print a table line by line, so that a time limit loses nothing. Only drains of all kinds have a tail."""
    recordings = Recordings(folder)
    records = writers(recordings)[writer]
    wanted = {kind: of_kind(records, kind) for kind in kinds}
    needed = {id(each): each for some in wanted.values() for each in some}
    measuring = on_a_gpu(shape, weights, recordings, [*needed.values()])
    print(table(MEASURED, ()), flush=True)
    for kind, some in wanted.items():
        for at_once in rows:
            for cells in measuring.measure(kind, some, at_once, tail=kind == ALL):
                print("| " + " | ".join(cells) + " |", flush=True)


def writers(recordings: Recordings) -> dict[str, list[Recorded]]:
    """Outputs by who wrote them, and how."""
    people = recordings.of("people")
    return {
        "bundled model": recordings.of("model"),
        "people": [each for each in people if each.schema is not None],
        "people, prose": [each for each in people if each.schema is None],
    }


def main() -> None:
    """Record outputs, replay them, or measure."""
    parser = CommandLine("drafts", __doc__)
    parser.add_argument("what", choices=("record", "replay", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", type=positive(int), default=10, help="of each kind")
    parser.add_argument("--shape", default="llama-8b")
    parser.add_argument("--weights", default="auto", choices=("auto", "fp8"))
    parser.add_argument("--writer", default="people", choices=("bundled model", "people", "people, prose"))
    parser.add_argument(
        "--kind", nargs="+", choices=(ALL, *KINDS), default=(ALL, *QUOTING), help="of the outputs that are measured"
    )
    parser.add_argument("--rows", nargs="+", type=positive(int), default=AT_ONCE, help="at once, when measured")
    options = parser.parse_args()
    if options.what == "replay":
        study(options.folder)
    elif options.what == "measure":
        measured(options.folder, options.shape, options.weights, options.writer, options.kind, options.rows)
    else:
        recorder = Recorder(bundled_model_path())
        recorder.save(options.folder, options.cases)
        recorder.close()


if __name__ == "__main__":
    main()
