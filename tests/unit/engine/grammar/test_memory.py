"""What a step brings of masks, and what the device remembers: each row gets the mask of its own grammar's state."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.support.forcing_grammar import Forcing
from tests.support.grammars import compiled
from tests.support.json_schemas import record, text
from tests.support.masks import Masks
from thothy_ai.engine.api.step import ANY, MAX_NEW_MASKS, StepMasks, remembered_masks
from thothy_ai.engine.execution.mask_table import MaskTable
from thothy_ai.engine.grammar import memory as grammar_memory
from thothy_ai.engine.grammar.batch import start_filling
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.grammar.memory import MaskMemory, RowMasks
from thothy_ai.engine.grammar.tokens import allowed_tokens
from thothy_ai.engine.text.model_text import core_tokenizer

EOS = (0, 2)
VOCAB = 741
WORDS = -(-VOCAB // 32)
MASK = np.full(WORDS, 7, np.int32)
KEYS = [(bytes([number]), 0, 0, 0, b"") for number in range(9)]


@pytest.fixture(scope="module")
def compiler(tokenizer: PreTrainedTokenizerFast) -> GrammarCompiler:
    return GrammarCompiler(core_tokenizer(tokenizer), VOCAB, EOS, lexers=2)


def of_text(compiler: GrammarCompiler, characters: str, most: int, count: int) -> list[JsonGrammar]:
    """Grammars of a text of these characters, which begins with what is forced."""
    schema = json.dumps(record(a=text(f"^[{characters}]{{1,{most}}}$")))
    return [compiled(compiler, schema) for _ in range(count)]


def in_text(compiler: GrammarCompiler, characters: str, most: int, count: int) -> list[JsonGrammar]:
    """Grammars in the same state: at the start of a text of these characters."""
    made = of_text(compiler, characters, most, count)
    for grammar in made:
        for token in grammar.forced():
            grammar.advance(token)
    return made


def check(masks: Masks, grammars: Sequence[JsonGrammar]) -> None:
    """Each row has what llguidance computes."""
    for row, grammar in zip(masks.of(*grammars), grammars, strict=True):
        alone = torch.empty(WORDS, dtype=torch.int32)
        grammar.compute(alone)
        assert torch.equal(row, alone)


def test_rows_of_one_new_state_bring_one_mask_and_later_ones_none(compiler: GrammarCompiler) -> None:
    masks, grammars = Masks(VOCAB), in_text(compiler, "a-m", 50, 5)
    for new in (1, 0, 0):
        check(masks, grammars)
        assert masks.new == new
    check(masks, [*in_text(compiler, "n-z", 50, 2), *grammars])
    assert (masks.new, len(masks.memory)) == (1, 2)


def test_a_mask_that_was_forgotten_is_computed_again(compiler: GrammarCompiler) -> None:
    """Also where its place has gone to another within a step of rows that have theirs."""
    masks = Masks(VOCAB, most=2)
    one, two, three = (in_text(compiler, letters, 50, 3) for letters in ("a-d", "e-h", "i-l"))
    for grammars, new in (([*one, *two], 2), (one, 0), ([*one, *three], 1), (one, 0), (two, 1), (one, 0), (three, 1)):
        check(masks, grammars)
        assert (masks.new, len(masks.memory)) == (new, 2)


def test_states_for_which_there_is_no_place_get_their_masks_all_the_same(compiler: GrammarCompiler) -> None:
    masks = Masks(VOCAB, most=1)
    grammars = [grammar for letters in ("a-d", "e-h", "i-l") for grammar in in_text(compiler, letters, 50, 2)]
    for _ in range(3):
        check(masks, grammars)
        assert len(masks.memory) == 1


def test_a_text_that_is_led_to_its_end_leaves_the_remembered_mask_as_it_is(compiler: GrammarCompiler) -> None:
    masks, (closing, free) = Masks(VOCAB), in_text(compiler, "a-m", 50, 2)
    closing.limit(10)
    assert closing.closes
    narrowed, _ = masks.of(closing, free)
    assert len(masks.memory) == 1
    whole = torch.empty(WORDS, dtype=torch.int32)
    free.compute(whole)
    assert not torch.equal(narrowed, whole)
    check(masks, [free])
    assert masks.new == 0
    alone = torch.empty(WORDS, dtype=torch.int32)
    closing.fill_mask(alone)
    assert torch.equal(masks.of(closing, free)[0], alone)


def test_a_row_that_is_led_to_its_end_brings_a_mask_of_its_own_alone(compiler: GrammarCompiler) -> None:
    masks, grammars = Masks(VOCAB), [*in_text(compiler, "a-m", 50, 1), *in_text(compiler, "n-z", 51, 1)]
    for grammar in grammars:
        grammar.limit(14)
    masks.of(*grammars)
    assert all(grammar.closes for grammar in grammars)
    assert (masks.new, len(masks.memory)) == (len(grammars), 0)


def test_a_lexer_that_must_compute_a_mask_computes_a_remembered_one(compiler: GrammarCompiler) -> None:
    masks, grammars = Masks(VOCAB), in_text(compiler, "a-m", 60, 2)
    check(masks, grammars)
    grammars[1].lexer.needs_mask = True
    found = masks.of(*grammars)
    assert (masks.new, len(masks.memory)) == (1, 1)
    assert not grammars[1].lexer.needs_mask
    assert found.equal(masks.of(grammars[0], grammars[0]))


def test_a_state_that_two_rows_compute_in_one_step_is_remembered_once(compiler: GrammarCompiler) -> None:
    masks, grammars = Masks(VOCAB), in_text(compiler, "a-m", 60, 2)
    grammars[0].lexer.needs_mask = True
    check(masks, grammars)
    assert (masks.new, len(masks.memory)) == (2, 1)
    check(masks, grammars)
    assert masks.new == 0


def test_rows_do_not_share_the_mask_of_a_matcher_that_broke(compiler: GrammarCompiler) -> None:
    masks, grammars = Masks(VOCAB), in_text(compiler, "a-m", 60, 2)
    grammars[0].matcher.consume_token(EOS[0])
    assert grammars[0].matcher.is_error()
    check(masks, grammars)
    assert (masks.new, len(masks.memory)) == (2, 0)
    check(masks, grammars)
    assert (masks.new, len(masks.memory)) == (1, 1)


def test_rows_without_a_grammar_may_have_any_token(compiler: GrammarCompiler) -> None:
    masks, (grammar,) = Masks(VOCAB), in_text(compiler, "a-m", 50, 1)
    for _ in range(2):
        filled, lacking = masks.fill([(grammar, 2), (Forcing(-1, []), 3)], 5)
        assert (filled[[0, 1, 4]] == -1).all()
        assert not (filled[2] == -1).all()
        assert lacking == [3]


CLASSES = ("[a-z ]", r"[^\x00-\x08]", r'["\\n]', "[äöü日本é]", r"[^\x00-\x1f\\*]", "[x]")


@pytest.mark.parametrize("name", CLASSES)
def test_masks_of_less_room_in_a_field_follow_from_those_of_more(compiler: GrammarCompiler, name: str) -> None:
    """They are what llguidance computes: also with tokens that end the field, escapes, and parts of characters."""
    draw, memory, derived = random.Random(name), MaskMemory(VOCAB), 0
    field = text(f"^{name}{{2,14}}$")
    schema = json.dumps(record(a=field, b=field))
    for _ in range(25):
        grammar = compiled(compiler, schema)
        for _ in range(25):
            alone, found = torch.empty(WORDS, dtype=torch.int32), np.empty(WORDS, np.int32)
            grammar.compute(alone)
            key = grammar.state_key()
            if key is not None and memory.derive(key, grammar.tokens, found):
                derived += 1
                assert (found == alone.numpy()).all(), key
            elif key is not None:
                memory.keep_widest(key, alone.numpy())
            tokens = allowed_tokens(alone.numpy())
            if {*tokens} & {*EOS}:
                break
            grammar.advance(draw.choice(tokens))
    assert derived > 20


def test_the_widest_masks_that_were_used_least_recently_are_forgotten(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_memory, "_WIDEST", 2)
    memory, (grammar,) = MaskMemory(VOCAB), in_text(compiler, "a-m", 50, 1)
    found, fields = np.empty(WORDS, np.int32), [(bytes([number]), 0, 0, 9, b"") for number in range(3)]
    for key in fields[:2]:
        memory.keep_widest(key, MASK)
    assert memory.derive(fields[0], grammar.tokens, found)
    memory.keep_widest(fields[2], MASK)
    assert [memory.derive(key, grammar.tokens, found) for key in fields] == [True, False, True]


def test_masks_that_leave_no_choice_are_told_computed_or_remembered(compiler: GrammarCompiler) -> None:
    masks, grammars = Masks(VOCAB), [*of_text(compiler, "a-m", 50, 2), *in_text(compiler, "a-m", 50, 1)]
    for _ in range(2):
        assert masks.fill([(grammar, row + 1) for row, grammar in enumerate(grammars)], 4)[1] == [1, 2]


def test_the_memory_forgets_what_was_used_least_recently(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MaskMemory(VOCAB, masks=6)
    monkeypatch.setattr(grammar_memory, "_FORGOTTEN", 3)  # two at a time
    places = []
    for key in KEYS[:6]:
        memory.begin([])
        places.append(memory.keep(key, MASK, lacking=False))
    assert sorted(places) == [1, 2, 3, 4, 5, 6]
    assert memory.begin([memory.place_of(KEYS[0]), ANY, memory.place_of(KEYS[2]), places[3]]) == []
    assert memory.keep(KEYS[6], MASK, lacking=True) in (places[1], places[4])
    assert [memory.place_of(key) is not None for key in KEYS[:7]] == [True, False, True, True, False, True, True]
    assert memory.begin([ANY, memory.place_of(KEYS[6]), places[0]]) == [1]


def test_a_known_token_needs_no_mask_where_the_row_has_one_of_that_token_alone() -> None:
    memory, alone = MaskMemory(VOCAB), np.zeros(WORDS, np.int32)
    alone[3] = 1 << 5
    memory.begin([])
    masks, places = (
        RowMasks(4, memory),
        [memory.keep(KEYS[0], alone, lacking=True), memory.keep(KEYS[1], MASK, lacking=True)],
    )
    masks.places[:3] = places[0], places[0], places[1]
    for row, token in enumerate((101, 102, 101, 101)):
        masks.allow_only(row, token)
    masks.allow_only(1, 101)
    step, behind = masks.of_step(), 1 + remembered_masks(VOCAB)
    assert step.places.tolist() == [places[0], behind, behind + 1, behind + 2]
    assert (step.new == alone).all()


def test_what_the_present_step_uses_is_not_forgotten() -> None:
    memory = MaskMemory(VOCAB, masks=2)
    memory.begin([])
    places = [memory.keep(key, MASK, lacking=False) for key in KEYS[:3]]
    assert places[2] is None
    memory.begin([places[0]])
    assert [memory.keep(key, MASK, lacking=False) for key in KEYS[3:5]] == [places[1], None]


def test_a_row_s_own_mask_replaces_what_it_had_and_parts_of_a_step_bring_all_that_is_new() -> None:
    memory = MaskMemory(VOCAB)
    memory.begin([])
    masks, place = RowMasks(4, memory), memory.keep(KEYS[0], MASK, lacking=False)
    numbers = masks.add(4)
    masks.bits[: len(numbers)] = [[3], [4], [5], [6]]
    masks.keep(place, numbers[0])
    masks.places[0] = masks.places[1] = place
    masks.give(1, numbers[1])
    masks.give(3, numbers[2])
    masks.give(1, numbers[3])
    step, behind = masks.of_step(), 1 + remembered_masks(VOCAB)
    assert step.places.tolist() == [place, behind, ANY, behind + 1]
    assert (step.targets.tolist(), step.new[:, 0].tolist()) == ([place, behind + 1, behind], [3, 5, 6])
    part = step.of([3, 0])
    assert isinstance(part, StepMasks)
    assert (part.places.tolist(), part.targets.tolist()) == ([behind + 1, place], step.targets.tolist())


def test_a_row_brings_a_mask_to_keep_and_one_of_its_own_at_most(compiler: GrammarCompiler) -> None:
    grammars = [*in_text(compiler, "a-m", 50, 1), *in_text(compiler, "n-z", 51, 1)]
    rows, memory = [(grammar, row) for row, grammar in enumerate(grammars)], MaskMemory(VOCAB)
    masks, table = RowMasks(2, memory), MaskTable(2, VOCAB, torch.device("cpu"))
    start_filling(masks, rows).wait()
    for row in range(2):
        masks.allow_only(row, 100 + row)
    step = masks.of_step()
    assert len(step.targets) == len(masks.bits) == 2 * MAX_NEW_MASKS
    assert [list(allowed_tokens(row.numpy())) for row in table.rows(step)] == [[100], [101]]
    masks = RowMasks(2, memory)
    start_filling(masks, rows).wait()
    step = masks.of_step()
    assert len(step.targets) == 0
    for row, grammar in zip(table.rows(step), grammars, strict=True):
        alone = torch.empty(WORDS, dtype=torch.int32)
        grammar.compute(alone)
        assert torch.equal(row, alone)


def test_a_shared_mask_that_all_its_rows_lose_is_not_sent() -> None:
    memory = MaskMemory(VOCAB)
    memory.begin([])
    masks = RowMasks(2, memory)
    (number,) = masks.add(1)
    masks.give(0, number)
    masks.give_same(1, 0)
    for row in range(2):
        masks.allow_only(row, row)
    step, behind = masks.of_step(), 1 + remembered_masks(VOCAB)
    assert step.places.tolist() == step.targets.tolist() == [behind, behind + 1]
    assert step.new[:, 0].tolist() == [1, 2]


def test_rows_share_a_mask_until_one_of_them_gets_a_known_token_and_no_mask_is_copied() -> None:
    memory = MaskMemory(VOCAB)
    memory.begin([])
    masks = RowMasks(3, memory)
    (number,) = masks.add(1)
    masks.bits[number] = 3
    masks.give(0, number)
    masks.give_same(1, 0)
    masks.give_same(2, 0)
    masks.allow_only(1, 5)
    masks.allow_only(1, 6)
    step, behind = masks.of_step(), 1 + remembered_masks(VOCAB)
    assert step.places.tolist() == [behind, behind + 1, behind]
    assert (step.targets.tolist(), step.new[:, 0].tolist()) == ([behind, behind + 1], [3, 1 << 6])
    assert np.shares_memory(step.new, masks.bits)


def test_a_larger_vocabulary_has_fewer_masks_in_the_same_memory() -> None:
    assert [remembered_masks(size) for size in (300, 131_072, 262_144, 2**31)] == [8_192, 8_192, 4_096, 1]
