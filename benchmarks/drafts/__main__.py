"""What drafts would gain: outputs are replayed through the engine's drafter, and steps are priced on an H200.

    python -m benchmarks.drafts record FILE [--cases 10]    outputs of the bundled model for jobs of the four kinds
    python -m benchmarks.drafts label FILE                  labelled texts that people wrote, with its tokenizer
    python -m benchmarks.drafts replay MODEL'S PEOPLE'S     prints and records what drafts would gain
    python -m benchmarks.drafts measure FILE [--shape llama-8b] [--kind hook]      on a GPU: what they do gain

A draft is right where it equals the recorded token; tokens that grammars force are known without any. Prices are those
of llama-8b in bfloat16 by `device_model`: of a step of a captured size, of the KV that it reads, and 1 ms and 30 us
per row of the host's time, which a step with drafts does not hide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command_line import CommandLine, positive
from benchmarks.device_model import LLAMA
from benchmarks.drafts.measure import measure
from benchmarks.drafts.recording import KINDS, Recorded, Recorder, labelled, read, save
from benchmarks.drafts.replay import Costs, Replayed, replay
from benchmarks.results import Row, Table, record, table
from benchmarks.validators import FOLDER
from thothy_ai.engine.checkpoint.bundled import bundled_model_path

ROWS = 1, 4, 16, 32, 64
COSTS = Costs(LLAMA)
HEADER = ("outputs", "rows", "tokens a step", "drafts a row", "accepted", "gain")
MATCH_HEADER = ("outputs", "kind", "1", "2 to 3", "4 to 7", "8 to 15", "16 or more")
MEASURED = ("at once", "tokens", "per second without", "with drafts", "times", "drafted", "right")
_BOUNDS = (2, 3, 5, 7, 99)  # classes of lengths below which a column of these ends


def replayed(name: str, records: Sequence[Recorded]) -> tuple[list[Row], list[float], Replayed]:
    """Rows of the table, the gains, and the sums of the replay of one row."""
    rows, gains = [], []
    first = Replayed()
    for number in ROWS:
        plain = replay(records, number, COSTS, drafts=False)
        drafted = replay(records, number, COSTS, drafts=True)
        gains.append(plain.seconds / drafted.seconds)
        values = (
            plain.row_steps / drafted.row_steps,
            drafted.drafted / drafted.row_steps,
            drafted.accepted / max(1, drafted.drafted),
            gains[-1],
        )
        rows.append((name, f"{number}", *(f"{value:.2f}" for value in values)))
        first = drafted if number == 1 else first
    print(table(HEADER, rows), flush=True)
    return rows, gains, first


def by_length(name: str, sums: Replayed) -> list[Row]:
    """How often the first guess was right, and how often there was one, by kind and length of the match."""
    rows = []
    for kind in KINDS:
        tried, right = Counter[int](), Counter[int]()
        for (each, length), count in sums.tried.items():
            if each == kind:
                column = next(place for place, bound in enumerate(_BOUNDS) if length < bound)
                tried[column] += count
                right[column] += sums.right[each, length]
        cells = [f"{right[at] / tried[at]:.2f} of {tried[at]:,}" if tried[at] else "-" for at in range(len(_BOUNDS))]
        rows.append((name, kind, *cells))
    return rows


def study(model: Path, people: Path) -> None:
    """Replay both files, kind by kind and mixed, and record the figures."""
    gains, lengths, mixed = list[Row](), list[Row](), list[list[float]]()
    for name, path in (("bundled model", model), ("people", people)):
        records = sorted(read(path), key=lambda each: each.source)
        for kind in KINDS:
            gains += replayed(f"{name}, {kind}", [each for each in records if each.kind == kind])[0]
        rows, all_kinds, sums = replayed(f"{name}, all", records)
        gains += rows
        lengths += by_length(name, sums)
        mixed.append(all_kinds)
    print(table(MATCH_HEADER, lengths))
    record(
        "Drafts, replayed",
        "Engine",
        "python -m benchmarks.drafts replay",
        [
            (
                "llama-8b at 1, 16, 64 rows, times without drafts: outputs of the bundled model; texts of people",
                "; ".join(", ".join(f"{found[ROWS.index(rows)]:.2f}" for rows in (1, 16, 64)) for found in mixed),
                "1.1 at 16",
            )
        ],
        tables=[
            Table("priced on an H200, llama-8b in bfloat16", HEADER, gains),
            Table("first guesses that were right, by length of the match", MATCH_HEADER, lengths),
        ],
    )


def main() -> None:
    """Record outputs, or replay them."""
    parser = CommandLine("drafts", __doc__)
    parser.add_argument("what", choices=("record", "label", "replay", "measure"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--cases", type=positive(int), default=10, help="of each kind")
    parser.add_argument("--shape", default="llama-8b")
    parser.add_argument("--weights", default="auto", choices=("auto", "fp8"))
    parser.add_argument("--kind", choices=KINDS, help="of the outputs that are measured; default: all")
    options = parser.parse_args()
    if len(options.files) != (2 if options.what == "replay" else 1):
        parser.error("replay needs two files, the others one")
    if options.what == "replay":
        study(*options.files)
        return
    if options.what == "measure":
        records = [each for each in read(options.files[0]) if options.kind in (None, each.kind)]
        records.sort(key=lambda each: each.source)
        print(table(MEASURED, measure(options.shape, options.weights, records)))
        return
    recorder = Recorder(bundled_model_path())
    try:
        if options.what == "record":
            save(options.files[0], (each for kind in KINDS for each in recorder.record(kind, options.cases)))
        else:
            save(options.files[0], labelled(FOLDER, recorder.tokenizer))
    finally:
        recorder.close()


if __name__ == "__main__":
    main()
