"""The kind `hook`: what makes readers want to read the piece, in several variants, within the limits of a channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import JobKind
from thothy_ai.jobs.api.requests import ShortText, WritingRequest
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.plans import small_models as plain
from thothy_ai.jobs.plans.parts import Fault, InParts, Part, Piece, Values, Writing
from thothy_ai.jobs.plans.review import Statement
from thothy_ai.jobs.plans.writing import astray, copied, foreign, repair, spelled, text_fault, whole
from thothy_ai.jobs.schema import grammar_schema, object_schema, prose, prose_pattern

MIN_SHARE_OF_SOURCE = 0.2  # of the longer words
MAX_COPIED = 0.7  # of all words: a hook may quote
MAX_VARIANTS = 5
CHARS_PER_WORD = 8  # of a small model's headline, which must fit a channel's limit
Channel = Literal["newsletter", "social post", "video", "podcast", "landing page"]


@dataclass(frozen=True, slots=True)
class Form:
    """What a channel publishes: what it is called in the prompt, its limits, and whether it is whole sentences."""

    description: str
    max_chars: int
    max_sentences: int
    whole_sentences: bool = True


FORMS: Final[Mapping[str, Form]] = {
    "newsletter": Form("the subject line of a newsletter, at most 60 characters", 60, 2, whole_sentences=False),
    "social post": Form("a social media post, at most 280 characters, hashtags included", 280, 5),
    "video": Form("the text on a video's thumbnail, at most 40 characters", 40, 2, whole_sentences=False),
    "podcast": Form("the opening of a podcast episode, two or three sentences to be spoken", 420, 4),
    "landing page": Form("the headline of a landing page, at most 80 characters", 80, 2, whole_sentences=False),
}
PLAIN_TASKS: Final = (  # for a small model: an angle, and the sentence that asks for it
    ("the news", "Summarize the text above for {audience} in one {tone} sentence."),
    ("the reason", "Explain to {audience} in one {tone} sentence why this is happening."),
    ("a question", "Ask {audience} one {tone} question that the text above answers."),
    ("the people", "Say in one {tone} sentence who in the text above does what."),
    ("what comes next", "Say to {audience} in one {tone} sentence what comes next."),
)


class Variant(BaseModel):
    """A hook, and what it plays on."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    angle: Annotated[str, prose(1, 80)]
    text: Annotated[str, prose(1, 420)]


class HookArtifact(Artifact):
    """Variants of a hook for one channel."""

    variants: Annotated[tuple[Variant, ...], Field(min_length=1, max_length=MAX_VARIANTS)]


class Hook(WritingRequest[HookArtifact]):
    """Write hooks for a channel, in a tone, each from another angle."""

    channel: Annotated[Channel, Field(description="Where the hook appears.")] = "newsletter"
    variants: Annotated[int, Field(ge=1, le=MAX_VARIANTS, description="How many hooks to choose from.")] = 3
    tone: Annotated[ShortText, Field(description="Tone of the text.")] = "curious"

    @property
    def form(self) -> Form:
        """What the channel publishes."""
        return FORMS[self.channel]


_SCHEMA: Final = grammar_schema(HookArtifact)


def _schema(request: Hook) -> dict[str, Any]:
    """One schema per channel and number of variants."""
    schema = deepcopy(_SCHEMA)
    variants = schema["properties"]["variants"]
    variants |= {"minItems": request.variants, "maxItems": request.variants}
    variants["items"]["properties"]["text"]["pattern"] = prose_pattern(4, request.form.max_chars)
    return schema


def _instruction(request: Hook) -> str:
    several = f"{request.variants} hooks" if request.variants > 1 else "one hook"
    detail = request.per_length(" Be as brief as you can.", "", " Use the space.")
    return (
        f"Write {several} for {request.audience}: text that makes them want to read on, without giving everything away "
        f"or promising what the source does not keep.{detail}\n"
        f"text: {request.form.description}.\n"
        "angle: in two to five words, what the text plays on, such as a question, a contrast or a figure"
        f"{'; another one for each hook' if request.variants > 1 else ''}."
    )


def _write(writing: Writing[Hook]) -> Sequence[Piece]:
    if writing.context.plain:
        return [_plain_piece(writing, number, number, again=False) for number in range(writing.request.variants)]
    return (whole(writing, _instruction(writing.request), _schema(writing.request)),)


def _rewrite(writing: Writing[Hook], values: Values, faults: Sequence[Fault]) -> Sequence[Piece]:
    parts = tuple(dict.fromkeys(fault.part for fault in faults))
    if writing.context.plain:
        return _plain_rewrite(writing, values, [int(part[1]) for part in parts if len(part) > 1])
    variants = _schema(writing.request)["properties"]["variants"]
    schemas = {part: variants["items"] if len(part) > 1 else variants for part in parts}
    return (repair(writing, _write(writing)[0], values, faults, schemas),)


def _plain_rewrite(writing: Writing[Hook], values: Values, numbers: Sequence[int]) -> Sequence[Piece]:
    """Other tasks than those of the first try as far as there are any: the same one soon brings the same text."""
    used = {variant["angle"] for variant in values.get("variants", ())}
    spare = [task for task in range(writing.request.variants, MAX_VARIANTS) if PLAIN_TASKS[task][0] not in used]
    tasks = dict(zip(numbers, spare, strict=False))
    return [_plain_piece(writing, number, tasks.get(number, number), again=True) for number in numbers]


def _plain_piece(writing: Writing[Hook], number: int, task_number: int, *, again: bool) -> Piece:
    """The first is about a passage, so that one that fails costs least; the others share the source's KV."""
    request = writing.request
    shown = writing.source
    if again or number == 0:
        shown = " ".join(plain.passage(writing.source, request.locale, number, request.variants))
    angle, task = PLAIN_TASKS[task_number]
    text = plain.sentence(request.locale, 40, 120, shown)
    if not request.form.whole_sentences:
        task = "Write a headline for the text above." if task_number == 0 else task
        text = plain.headline(request.locale, 3, request.form.max_chars // CHARS_PER_WORD, shown)
    variant = object_schema({"text": text, "angle": {"const": angle}})
    asked = task.format(audience=request.audience, tone=request.tone)
    return plain.piece(writing, asked, {("variants", number): variant}, again=again, stage=number, shown=shown)


def _texts(values: Values) -> dict[Part, str]:
    return {("variants", number): variant["text"] for number, variant in enumerate(values.get("variants", ()))}


def _faults(request: Hook, values: Values) -> Iterator[Fault]:
    texts = _texts(values)
    if faults := foreign(request, texts):
        yield from faults
        return
    yield from _part_faults(request, values)
    if texts and len(texts) != request.variants:
        few = f"{len(texts)} variants, not {request.variants}"
        yield Fault(("variants",), Rejection(RejectionReason.TOO_SHORT, few))
    yield from copied(request, texts, MAX_COPIED)
    yield from astray(request, texts, _instruction(request), MIN_SHARE_OF_SOURCE)


def _part_faults(request: Hook, values: Values) -> Iterator[Fault]:
    for part, text in _texts(values).items():
        yield from text_fault(request, part, text, _own(request, part, text, values))


def _own(request: Hook, part: Part, text: str, values: Values) -> Iterator[Rejection | None]:
    form = request.form
    yield checks.length("text", text, request.locale, 2, 90)
    if len(text) > form.max_chars:
        limit = f"text has {len(text)} characters, more than the {form.max_chars} of a {request.channel}"
        yield Rejection(RejectionReason.TOO_LONG, limit)
    if (count := len(checks.sentences(text, request.locale))) > form.max_sentences:
        yield Rejection(RejectionReason.TOO_LONG, f"text has {count} sentences, more than {form.max_sentences}")
    if form.whole_sentences:
        yield checks.unfinished("text", text, request.locale)
    variant = values["variants"][int(part[1])]
    yield checks.empty("angle", variant["angle"])
    yield checks.refusal(variant["angle"], request.source)
    yield checks.meta_talk(variant["angle"], request.source)
    yield checks.obeys_source(variant["angle"], request.source)
    yield checks.unsafe_markup(variant["angle"])
    yield checks.banned(variant["angle"], request.banned_phrases)
    yield checks.near_duplicate(text, [other["text"] for other in values["variants"][: int(part[1])]])


def _mend(writing: Writing[Hook], values: dict[str, Any]) -> dict[str, Any]:
    variants = values.get("variants", ())
    return {
        "variants": [
            {
                "angle": str(variant.get("angle", "")).strip(),
                "text": spelled(str(variant.get("text", "")), writing.request.brand_terms).strip(),
            }
            for variant in variants
        ]
    }


def _statements(_: Hook, values: Values) -> Sequence[tuple[Part, Statement]]:
    """A hook may ask and tease; it may not say what the source denies."""
    return [(part, Statement(text, needs_support=False)) for part, text in _texts(values).items()]


KIND = JobKind(
    name="hook",
    request=Hook,
    artifact=HookArtifact,
    plan=InParts(
        artifact=HookArtifact,
        write=_write,
        rewrite=_rewrite,
        faults=_faults,
        statements=_statements,
        mend=_mend,
        part_faults=_part_faults,
    ),
    locale=lambda request: request.locale,
    source=lambda request: request.source,
    version="3",
    compared=lambda artifact: "\n".join(variant.text for variant in artifact.variants),
)
