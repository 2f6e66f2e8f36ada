"""Long sources: condensed until they fit the model's context, by map and reduce.

The model reads the source part by part and names the passages that matter most, by their numbers; those passages, under
their headings, are the condensed source. So it is verbatim: nothing is invented, its quotations are in the source, and
an answer costs a few tokens per passage. Decoding is greedy and the prompt is the same for all kinds, so that siblings
condense a source alike and share the result's KV.

    text = yield from condensed(request.source, context)
    (output,) = yield (Call(about_source(text, instruction, context), ...),)

`asked` does both, and condenses further whenever the engine refuses the prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

from thothy_ai.jobs.api.plan import MAX_STEPS, Call, Calls, Context, End, Output, Outputs, Sampling
from thothy_ai.jobs.prompts import about_source
from thothy_ai.jobs.schema import object_schema
from thothy_ai.jobs.text.division import divide, estimated_tokens, grouped

# Models overlook the middle of longer sources (Liu et al., "Lost in the Middle", 2023).
MAX_SOURCE_TOKENS = 24_000
RESERVE = 2_500  # tokens of the context that are left to instructions and output
MAX_CALLS = 32  # per step, side by side, unless that makes more than
MAX_BATCHES = MAX_STEPS // 8  # of calls side by side: a plan may condense, start over with less, write and repair
PASSAGE_TOKENS = 80
MAX_HALVINGS = 5
MAX_ROUNDS = 4
_GAP = "\n\n[…]\n\n"
_HEADING = re.compile(r"^#{1,6} .+", re.MULTILINE)

T = TypeVar("T")
Condensing = Generator[Calls, Outputs, str]


class _Passage(NamedTuple):
    """A passage, by its position in the source; `heading` is the last heading before it."""

    position: int
    text: str
    heading: str
    tokens: float


def room_for_source(context: Context, reserve: int = RESERVE) -> float:
    """How many tokens a prompt has for a source, if `reserve` are left for instructions and output."""
    reserve += round(sum(map(estimated_tokens, context.examples)))
    return min(MAX_SOURCE_TOKENS, max(context.max_context - reserve, context.max_context / 3))


def shorter(context: Context) -> Context:
    """The context to plan with after a prompt was refused: half as long."""
    return replace(context, max_context=context.max_context // 2)


def batches(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """The items in groups that run side by side in one step."""
    size = max(MAX_CALLS, -(-len(items) // MAX_BATCHES))
    return (tuple(items[start : start + size]) for start in range(0, len(items), size))


def side_by_side(calls: Sequence[Call]) -> Generator[Calls, Outputs, tuple[Output, ...]]:
    """Run any number of calls, in the steps that `batches` makes of them, and return their outputs in order."""
    outputs: list[Output] = []
    for batch in batches(calls):
        outputs += yield batch
    return tuple(outputs)


def asked(
    source: str, context: Context, call: Callable[[str, Context], Call], reserve: int = RESERVE
) -> Generator[Calls, Outputs, tuple[str, Output]]:
    """Ask about a source of any length: condense it, make the call, and start over, shorter, if the engine refuses.

    Returns the text that the call was about, and the output. It ends in `PROMPT_TOO_LONG` only if nothing fits.
    """
    for _ in range(MAX_HALVINGS):
        text = yield from condensed(source, context, reserve)
        (output,) = yield (call(text, context),)
        if output.end is not End.PROMPT_TOO_LONG:
            break
        context = shorter(context)
    return text, output


def condensed(source: str, context: Context, reserve: int = RESERVE) -> Condensing:
    """The source itself if it fits a prompt, otherwise its most important passages, in order."""
    room = room_for_source(context, reserve)
    if estimated_tokens(source) <= room:
        return source
    passages: Sequence[_Passage] = _passages(source)
    for _ in range(MAX_ROUNDS):
        passages = yield from _chosen(passages, room, context)
        if _tokens(passages) <= room:
            break
    while len(passages) > 1 and _tokens(passages) > room:
        passages = _spread(passages, max(1, min(len(passages) - 1, int(len(passages) * room / _tokens(passages)))))
    parts: list[str] = []
    last = -1
    for passage in passages:  # adjacent passages unchanged, others under their heading and after a gap mark
        adjacent = passage.position == last + 1
        parts += ["\n" if adjacent else _GAP] if parts else []
        parts.append(passage.text if adjacent else _shown(passage))
        last = passage.position
    return "".join(parts)


@lru_cache(maxsize=4)
def _passages(source: str) -> tuple[_Passage, ...]:
    passages, heading = [], ""
    for position, text in enumerate(divide(source, PASSAGE_TOKENS)):
        own = _HEADING.findall(text)
        starts_with_one = text.lstrip().startswith("#")
        shown = "" if starts_with_one else heading
        if text.strip():
            tokens = estimated_tokens(text) + estimated_tokens(shown) + 6  # for its number and a gap mark
            passages.append(_Passage(position, text.strip("\n"), shown, tokens))
        heading = own[-1] if own else heading
    return tuple(passages)


def _tokens(passages: Iterable[_Passage]) -> float:
    return sum(passage.tokens for passage in passages)


def _chosen(passages: Sequence[_Passage], room: float, context: Context) -> Generator[Calls, Outputs, list[_Passage]]:
    """One round: the passages that the model names in each group that fits a prompt."""
    share = room / _tokens(passages)
    groups = grouped(passages, lambda passage: passage.tokens, room, len(passages))
    chosen = [group[0] for group in groups if len(group) == 1]
    waiting = [group for group in groups if len(group) > 1]
    for _ in range(MAX_HALVINGS):
        outputs = yield from side_by_side([_selection(group, _keep(group, share), context) for group in waiting])
        refused: list[list[_Passage]] = []
        for group, output in zip(waiting, outputs, strict=True):
            if output.end is End.PROMPT_TOO_LONG and len(group) > 1:
                middle = len(group) // 2
                refused += [group[:middle], group[middle:]]
            else:
                chosen += _named(group, output) or _spread(group, _keep(group, share))
        waiting = refused
        if not waiting:
            break
    chosen += [passage for group in waiting for passage in _spread(group, _keep(group, share))]
    return sorted(chosen)


def _keep(group: list[_Passage], share: float) -> int:
    """How many passages of a group to keep: its share of the room, but at most half, so that each round shortens the
    text.
    """
    return max(1, min(round(len(group) * share), len(group) // 2))


def _selection(group: list[_Passage], keep: int, context: Context) -> Call:
    numbered = "\n\n".join(f"[{number}] {_shown(passage)}" for number, passage in enumerate(group, start=1))
    instruction = (
        f"The text above is part of a longer one, and its passages are numbered. Choose the {keep} that a reader most "
        "needs to understand the whole: facts, figures, causes and consequences. Answer with their numbers."
    )
    number = {"type": "integer", "minimum": 1, "maximum": len(group)}
    schema = object_schema({"passages": {"type": "array", "items": number, "minItems": keep, "maxItems": keep}})
    budget = 16 + keep * (1 + len(str(len(group))))
    return Call(about_source(numbered, instruction, context), schema, Sampling(max_tokens=budget), step="condense")


def _shown(passage: _Passage) -> str:
    return f"{passage.heading}\n{passage.text}" if passage.heading else passage.text


def _named(group: list[_Passage], output: Output) -> list[_Passage]:
    """The passages that an output names, without repetition; none if the output is unreadable."""
    try:
        numbers = json.loads(output.text)["passages"]
        return [group[number - 1] for number in dict.fromkeys(numbers) if 1 <= number <= len(group)]
    except (ValueError, KeyError, TypeError):
        return []


def _spread(group: Sequence[_Passage], keep: int) -> list[_Passage]:
    """Evenly spaced passages, including the first, for a group in which the model has chosen none."""
    return [group[index * len(group) // keep] for index in range(keep)]
