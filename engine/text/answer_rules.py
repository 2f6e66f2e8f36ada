"""The grammar of an answer: thoughts, then calls or what the model says, each in the model's own form.

A grammar is written in Lark, as llguidance reads it (https://github.com/guidance-ai/llguidance, docs/syntax.md). The
core adds the rules `schema_0`, `schema_1` and so on, from JSON schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from thothy_ai.engine.api.core import MAX_CALLS, Segments
from thothy_ai.engine.text.answer_form import AnswerForm

_ANY, _SOME = r"/(.|\n)*/", r"/(.|\n)+/"
_GAP = r"/[ \n]{0,4}/"  # around thoughts
_SIGNS = re.compile(r'"[^"]*"|[{}]|[:,] ?')  # of JSON


class RuleWriter:
    """Writes the grammars of one form. `added` are the ids of the tokenizer's added tokens, by their names."""

    def __init__(self, form: AnswerForm, added: Mapping[str, int]) -> None:
        self._form, self._added = form, added
        names = "|".join(map(re.escape, sorted(added, key=len, reverse=True))) or r"(?!)"
        self._pieces = re.compile(f"({names})")

    def write(self, names: Sequence[str], *, opened: bool, parallel: bool, bound: bool) -> str:
        """What may be said or called: the arguments of these tools have the schemas from `schema_0` on.

        What is said is `bound` by the schema after those. `opened`: the prompt begins a thought already.
        """
        form, begin = self._form, self._form.calls.begin
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
        lines = self._calls(names, parallel=parallel, leads=bound and not begin)
        if bound or channel or not begin:
            called = f"{self._literal(begin)} calls"
        elif self._is_token(begin):
            called = f"SAID? {self._literal(begin)} calls"
        else:
            until = _but_for(never_said, f"{_ANY} {_quoted(begin)}")
            lines += [f"UNTIL_CALL: {until}", "until_call[lazy]: UNTIL_CALL"]
            called = "until_call calls"
        lines += [f"SAID: {_but_for(never_said, _SOME)}", f"answer: {said} | {called}"]
        return "\n".join([self._start(lines, opened=opened), *lines])

    def segments(self, names: Sequence[str], *, opened: bool, parallel: bool) -> Segments:
        """The pieces of an answer of calls of these tools; without any, of a JSON text."""
        form, calls = self._form, self._form.calls
        thought, end = "", ""
        if form.thought is not None:
            lines: list[str] = []
            start = self._start(lines, opened=True).replace("thought answer", "thought")
            begin, end = ("" if opened else f"{_GAP} {self._literal(form.thought[0])}"), self._literal(form.thought[1])
            thought = "\n".join([start.replace("thought", f"{begin} thought"), *lines])
        if names:
            before, heads = calls.begin, tuple(self._literal(calls.head(name)) for name in names)
            after, link = calls.after_arguments + calls.end, calls.link if parallel else ""
        else:
            channel = self._is_token(form.said[0])
            before, heads, link = "", (self._literal(form.said[0]) if channel else "",), ""
            after = form.said[1] if channel else ""
        return Segments(thought, end, opened, self._literal(before), heads, self._literal(after), self._literal(link))

    def _start(self, lines: list[str], *, opened: bool) -> str:
        thought = self._form.thought
        if thought is None:
            return "start: answer"
        begin, end = map(self._literal, thought)
        if self._is_token(thought[1]):
            lines += [f"THOUGHT: {_SOME}", f"thought: THOUGHT? {end} {_GAP}"]
        else:
            lines += [f"thought: until_end {_GAP}", f"until_end[lazy]: {_ANY} {end}"]
        return "start: thought answer" if opened else f"start: ({_GAP} {begin} thought)? answer"

    def _calls(self, names: Sequence[str], *, parallel: bool, leads: bool) -> list[str]:
        form = self._form.calls
        # Beside an answer that is JSON, too, a head must be made of JSON's own signs: the lexer does not go back.
        spelled = _json_signs if leads and form.lead not in self._added else self._literal
        heads = [f"call_{at}: {spelled(form.head(name))} schema_{at}" for at, name in enumerate(names)]
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


def _json_signs(text: str) -> str:
    return " ".join(map(_quoted, _SIGNS.findall(text)))


def _but_for(beginnings: Sequence[str], expression: str) -> str:
    """What matches the expression and does not begin like this."""
    others = "".join(f" & ~({_GAP} {_quoted(each)} {_ANY})" for each in beginnings)
    return f"({expression}){others}" if others else expression
