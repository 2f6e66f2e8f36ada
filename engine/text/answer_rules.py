"""The grammar of an answer: thoughts, then calls or what the model says, each in the model's own form.

A grammar is written in Lark, as llguidance reads it (https://github.com/guidance-ai/llguidance, docs/syntax.md). The
core adds the rules `schema_0`, `schema_1` and so on, from JSON schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from thothy_ai.engine.text.answer_form import AnswerForm

MAX_CALLS = 32  # of one answer: a small model would go on and on
_ANY, _SOME = r"/(.|\n)*/", r"/(.|\n)+/"
_GAP = r"/[ \n]{0,4}/"  # after thoughts


class RuleWriter:
    """Writes the grammars of one form. `added` are the ids of the tokenizer's added tokens, by their names."""

    def __init__(self, form: AnswerForm, added: Mapping[str, int]) -> None:
        self._form, self._added = form, added
        names = "|".join(map(re.escape, sorted(added, key=len, reverse=True))) or r"(?!)"
        self._pieces = re.compile(f"({names})")

    @property
    def tells_calls_apart(self) -> bool:
        """Whether a call begins otherwise than a JSON text."""
        return bool(self._form.calls.begin) or self._form.calls.lead in self._added

    def write(
        self, names: Sequence[str], *, opened: bool, must_call: bool = False, parallel: bool = True, bound: bool = False
    ) -> str:
        """An answer with calls of these tools, whose arguments have the schemas from `schema_0` on.

        What it says is `bound` by the schema after those. `opened`: the prompt begins a thought already.
        """
        form, lines = self._form, list[str]()
        begin = form.calls.begin
        never_said = [] if begin else [form.calls.head(name) for name in names]
        if form.thought and not opened:
            never_said.append(form.thought[0])
        said = f"schema_{len(names)}" if bound else "SAID?"
        channel = self._is_token(form.said[0])  # all that is said comes after such a mark
        before, after = map(self._literal, form.said)
        if channel:
            said = f"{before} {said} {after}"
        elif bound and before:
            said = f"({before})? {said} ({after})?"
        answers = [] if must_call else [said]
        if names:
            lines += self._calls(names, parallel=parallel, leads=bound and not begin)
            if must_call or bound or channel or not begin:
                answers.append(f"{self._literal(begin)} calls")
            elif self._is_token(begin):
                answers.append(f"SAID? {self._literal(begin)} calls")
            else:
                lines += [
                    f"UNTIL_CALL: {_but_for(never_said, f'{_ANY} {_quoted(begin)}')}",
                    "until_call[lazy]: UNTIL_CALL",
                ]
                answers.append("until_call calls")
        lines += [f"SAID: {_but_for(never_said, _SOME)}", f"answer: {' | '.join(answers)}"]
        return "\n".join([self._start(lines, opened=opened), *lines])

    def _start(self, lines: list[str], *, opened: bool) -> str:
        thought = self._form.thought
        if thought is None:
            return "start: answer"
        begin, end = map(self._literal, thought)
        if self._is_token(thought[1]):
            lines += [f"THOUGHT: {_SOME}", f"thought: THOUGHT? {end} {_GAP}"]
        else:
            lines += [f"thought: until_end {_GAP}", f"until_end[lazy]: {_ANY} {end}"]
        return "start: thought answer" if opened else f"start: ({begin} thought)? answer"

    def _calls(self, names: Sequence[str], *, parallel: bool, leads: bool) -> list[str]:
        form = self._form.calls
        heads = [f"call_{at}: {self._literal(form.head(name))} schema_{at}" for at, name in enumerate(names)]
        more = f" ({self._literal(form.link)} call){{0,{MAX_CALLS - 1}}}" if parallel and form.link else ""
        lead = f"{self._literal(form.lead)}{'' if leads else '?'} " if form.lead in self._added else ""
        return [
            f"calls: {lead}call{more} {self._literal(form.after_arguments + form.end)}",
            f"call: {' | '.join(f'call_{at}' for at in range(len(names)))}",
            *heads,
        ]

    def _is_token(self, mark: str) -> bool:
        return self._pieces.match(mark) is not None

    def _literal(self, text: str) -> str:
        """The text with its special tokens as tokens."""
        pieces = filter(None, self._pieces.split(text))
        return " ".join(f"<[{self._added[each]}]>" if each in self._added else _quoted(each) for each in pieces)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _but_for(beginnings: Sequence[str], expression: str) -> str:
    """What matches the expression and does not begin like this."""
    others = "".join(f" & ~({_quoted(each)} {_ANY})" for each in beginnings)
    return f"({expression}){others}" if others else expression
