"""Which slices of the vocabulary a schema gets, and that llguidance can use them where they are meant to serve."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import cache
from itertools import product

import pytest
import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from thothy_ai.engine.grammar.slices import general_slices, own_slices
from thothy_ai.jobs import Context
from thothy_ai.jobs.kinds import hook, report_section, translation, trend_summary
from thothy_ai.jobs.plans import small_models

KINDS = (trend_summary.KIND, hook.KIND, translation.KIND, report_section.KIND)
REQUESTS = [(kind, kind.request(source="A source of a few words.")) for kind in KINDS]
SCHEMAS = [json.dumps(next(kind.plan(request, Context()))[0].schema) for kind, request in REQUESTS]
CLASSES = (
    '{"type": "array", "items": {"type": "string", "pattern": "^[a-zäöü ]{3,40}(-[a-z0-9_\\"]{1,9})?$"}, "maxItems": 3}'
)
FIGURES = "The 12 clubs have 31,000 members."


def of_pattern(pattern: str) -> tuple[str, ...]:
    return own_slices(json.dumps({"type": "string", "pattern": pattern}))


@pytest.mark.parametrize("schema", SCHEMAS, ids=[kind.name for kind in KINDS])
def test_the_kinds_texts_are_prose(schema: str) -> None:
    assert own_slices(schema) == ()
    assert len(general_slices()) == 4


def test_other_character_classes_get_slices_of_their_own_widest_last() -> None:
    slices = own_slices(CLASSES)
    assert len(slices) == 5
    assert all('&&[^"\\\\' in each for each in slices), "never a character that JSON escapes"
    assert ["äöü" in each for each in slices] == [True] * 2 + [False] * 3
    assert slices[-1] == f" {slices[2]}", "words that a space precedes"


def test_a_class_with_a_space_needs_none_for_words_behind_one() -> None:
    assert not any(each.startswith(" ") for each in of_pattern("^[a-z ]{3,40}$"))


@pytest.mark.parametrize("pattern", ["[", "[a-", r"[\p{L}]", "[a[b]]", "[a&&b]", "", "[z-a]", "x" * 9, "[.!?]"])
def test_a_pattern_that_python_reads_otherwise_or_of_few_characters_gets_none(pattern: str) -> None:
    assert own_slices(json.dumps({"anyOf": [{"pattern": pattern}, {"pattern": 7}]})) == ()


def test_what_a_pattern_often_repeats_gets_slices_without_what_is_particular_to_it() -> None:
    [*_, shorter, longer] = of_pattern(r"^[A-Z](?:[a-z]| [a-z]{2}|, [a-z]| (?:17|\|)[a-z]){9,80}[.]$")
    unit = '(?:[[a-z]&&[^"\\\\\\x00-\\x1f\\x7f]]| [[a-z]&&[^"\\\\\\x00-\\x1f\\x7f]]{2})'
    assert (shorter, longer) == (unit + "{1,8}", unit + "{1,20}")


@pytest.mark.parametrize(
    "pattern",
    [
        "^(?:[a-z]| [a-z]){2,9}$",  # seldom
        "^(?:[a-z]| [a-z])$",
        "^(?:[a-z]|-){9,80}$",  # one alternative: its class has slices
        "^(?:[a-z[0]]| [a-z[0]]){9,80}$",
    ],
)
def test_other_groups_get_none(pattern: str) -> None:
    assert not any("|" in each for each in of_pattern(pattern))


def test_repetitions_are_found_however_often_and_deep_groups_are() -> None:
    assert any("|" in each for each in of_pattern(r"^((x)?\((?:(?:[a-z]| [a-z])*))$"))


@pytest.mark.parametrize(
    "piece", ["(", "(?:a)", "(?:[a-z]|", "[", "[\\]", "\\(", "\\([b]a", "(a|", "|", "[a-z]{2}", "(\\", "(?:a|[b"]
)
def test_no_pattern_takes_long_to_read(piece: str) -> None:
    """Four times as long a pattern takes about four times as long, however fast the machine is."""
    short, long = (min(reading_seconds(piece, length) for _ in range(3)) for length in (5_000, 20_000))
    assert long < 8 * short + 0.05


def reading_seconds(piece: str, length: int) -> float:
    """The processor time of patterns of about this many characters, some with deep groups."""
    began = time.process_time()
    of_pattern(piece * (length // len(piece)))
    of_pattern(piece * (length // 40) + "(a)" * (length // 600))
    of_pattern(piece * (length // 20) + "[a-z]" + ")*" * (length // 20))
    return time.process_time() - began


def test_all_sources_in_a_script_share_the_slices_of_a_sentence() -> None:
    assert of_pattern(small_models.sentence("en", 30, 110, FIGURES)["pattern"]) == of_pattern(
        small_models.sentence("pl", 40, 120, "Klub.")["pattern"]
    )


def mask_seconds(schema: dict[str, str], begun: str, slices: Sequence[str]) -> float:
    """The processor time of a mask behind this text, at best of several."""
    tokens = wide_tokenizer(tuple(slices))
    start = LLMatcher(tokens, LLMatcher.grammar_from_json_schema(schema))
    row, seconds = torch.empty(-(-tokens.vocab_size // 32), dtype=torch.int32), []
    for _ in range(20):
        matcher = start.deep_copy()  # one that has computed a mask remembers it
        assert matcher.consume_tokens(tokens.tokenize_str(begun))
        began = time.thread_time()
        matcher.unsafe_compute_mask_ptr(row.data_ptr(), row.nbytes)
        seconds.append(time.thread_time() - began)
    assert row.any()
    return min(seconds)


@cache
def wide_tokenizer(slices: tuple[str, ...]) -> LLTokenizer:
    """Single bytes, and all words of three small letters, also behind a space: as most tokens of a large vocabulary."""
    words = ["".join(letters) for letters in product("abcdefghijklmnopqrstuvwxyz", repeat=3)]
    pieces = [*sorted(ByteLevel.alphabet()), *words, *(f"Ġ{word}" for word in words), "<end>"]
    bpe = Tokenizer(BPE({piece: number for number, piece in enumerate(pieces)}, []))
    bpe.pre_tokenizer, bpe.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<end>")
    return from_tokenizer(fast, n_vocab=len(pieces), slices=list(slices))


@pytest.mark.parametrize(
    ("schema", "begun"),
    [
        (small_models.sentence("en", 40, 110, FIGURES), '"The clubs ha'),
        (small_models.sentence("en", 10, 110, FIGURES), '"The clubs have a hundred boards'),
        (small_models.headline("en", 4, 9, FIGURES), '"The clubs'),
        (small_models.headline("en", 2, 9, FIGURES), '"The clubs have'),
    ],
)
def test_masks_of_what_a_small_model_writes_walk_few_tokens(schema: dict[str, str], begun: str) -> None:
    assert mask_seconds(schema, begun, own_slices(json.dumps(schema))) < mask_seconds(schema, begun, ()) / 2
