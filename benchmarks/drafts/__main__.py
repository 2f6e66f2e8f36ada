"""What drafts would gain: recorded outputs are written by the engine over a device that is modelled, or on a GPU.

    python -m benchmarks.drafts record FOLDER [--cases 10]      of the bundled model for jobs of the four kinds, and
                                                                labelled texts that people wrote
    python -m benchmarks.drafts replay FOLDER                   prints and records what drafts would gain
    python -m benchmarks.drafts measure FOLDER [--shape llama-8b] [--kind hook]      on a GPU: what they do gain

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
from benchmarks.drafts.measure import measure
from benchmarks.drafts.modelled import ModelledDevice
from benchmarks.drafts.recording import KINDS, Recorded, Recorder, Recordings
from benchmarks.drafts.replaying import Drained, Replaying
from benchmarks.results import Row, Table, record, table
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.grammar.compiler import GrammarCompiler

ROWS = 1, 16, 64
OF_A_KIND = (16,)  # rows
MANY = 64  # outputs of a kind and writer, at most
HEADER = ("outputs", "rows", "tokens a step", "drafts a row", "right", "host, us a row", "gain")
MEASURED = ("at once", "tokens", "per second without", "with drafts", "times", "drafted", "right")


def drained(
    recordings: Recordings, grammars: GrammarCompiler, records: Sequence[Recorded], at_once: int, *, drafts: bool
) -> tuple[Drained, int, float]:
    """What writing these took, in how many steps of a row, and the seconds in which the device waited for the host."""
    device = ModelledDevice(LLAMA)
    build = partial(device.core, recordings.vocab_size, recordings.end, drafts=drafts)
    engine = Replaying(build, grammars, recordings.end, device.now)
    engine.prepare(records)
    rows, idle = device.rows, device.idle
    result = engine.drain(records, at_once)
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
    mixed = dict[str, list[Row]]()
    for name, written in writers(recordings).items():
        by_kind = {kind: [each for each in written if each.kind == kind][:MANY] for kind in KINDS}
        for kind, records in by_kind.items():
            rows += replayed(f"{name}, {kind}", recordings, grammars, records, OF_A_KIND) if records else []
        all_kinds = [each for records in zip_longest(*by_kind.values()) for each in records if each is not None]
        mixed[name] = replayed(f"{name}, all", recordings, grammars, all_kinds[:MANY])
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
    parser.add_argument("--kind", choices=KINDS, help="of the outputs that are measured; default: all")
    options = parser.parse_args()
    if options.what == "replay":
        study(options.folder)
    elif options.what == "measure":
        recordings = Recordings(options.folder)
        records = [each for each in writers(recordings)[options.writer] if options.kind in (None, each.kind)]
        print(table(MEASURED, measure(options.shape, options.weights, recordings, records)))
    else:
        recorder = Recorder(bundled_model_path())
        recorder.save(options.folder, options.cases)
        recorder.close()


if __name__ == "__main__":
    main()
