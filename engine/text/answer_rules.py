"""The grammar of an answer: thoughts, then calls or the text that the model says, each in the model's own form.

Grammars are written in llguidance's dialect of Lark (https://github.com/guidance-ai/llguidance, docs/syntax.md). The
core adds the rules `schema_0`, `schema_1` and so on from JSON schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from thothy_ai.engine.api.core import MAX_CALLS, PairSegment, Segments
from thothy_ai.engine.grammar.bare import bare_strings
from thothy_ai.engine.text.answer_form import AnswerForm, PairForm
from thothy_ai.engine.text.parameters import CalledTool, Parameter

_ANY, _SOME = r"/(.|\n)*/", r"/(.|\n)+/"
_GAP = r"/[ \n]{0,4}/"  # around thoughts
_SIGNS = re.compile(r'"[^"]*"|[{}]|[:,] ?')  # of JSON


class RuleWriter:
    """Writes the grammars of one form. `added` are the ids of the tokenizer's added tokens, by their names."""

    def __init__(self, form: AnswerForm, added: Mapping[str, int]) -> None:
        self._form, self._added = form, added
        names = "|".join(map(re.escape, sorted(added, key=len, reverse=True))) or r"(?!)"
        self._pieces = re.compile(f"({names})")

    def write(self, tools: Sequence[CalledTool], *, opened: bool, parallel: bool, bound: bool) -> str:
        """The grammar of an answer that can say something or call these tools; their arguments have the schemas from
        `schema_0` on.

        With `bound`, the next schema binds what is said. `opened`: the prompt has already begun a thought.
        """
        form, begin, marked = self._form, self._form.calls.begin, self._form.calls.marked
        never_said = [] if marked else [begin + form.calls.head(tool.name) for tool in tools]
        if form.thought and not opened:
            never_said.append(form.thought[0])
        lines = self._calls(tools, parallel=parallel, leads=bound and not marked)
        said = f"schema_{sum(map(_schemas, tools))}" if bound else "SAID?"
        channel = self._is_token(form.said[0])  # all that is said comes after such a mark
        before, after = map(self._literal, form.said)
        if channel:
            said = f"{before} {said} {after}"
        elif bound and before:
            said = f"({before})? {said} ({after})?"
        if not marked:
            called = "calls"
        elif bound or channel:
            called = f"{self._literal(begin)} calls"
        elif self._is_token(begin):
            called = f"SAID? {self._literal(begin)} calls"
        else:
            until = _but_for(never_said, f"{_ANY} {_quoted(begin)}")
            lines += [f"UNTIL_CALL: {until}", "until_call[lazy]: UNTIL_CALL"]
            called = "until_call calls"
        lines += [f"SAID: {_but_for(never_said, _SOME)}", f"answer: {said} | {called}"]
        return "\n".join([self._start(lines, opened=opened), *lines])

    def segments(self, tools: Sequence[CalledTool], *, opened: bool, parallel: bool) -> Segments:
        """The pieces of an answer that calls these tools; without tools, of an answer that is a JSON text."""
        form, calls = self._form, self._form.calls
        thought, end = "", ""
        if form.thought is not None:
            lines: list[str] = []
            start = self._start(lines, opened=True).replace("thought answer", "thought")
            begin, end = ("" if opened else f"{_GAP} {self._literal(form.thought[0])}"), self._literal(form.thought[1])
            thought = "\n".join([start.replace("thought", f"{begin} thought"), *lines])
        if not tools:
            channel = self._is_token(form.said[0])
            head, after = (self._literal(form.said[0]), form.said[1]) if channel else ("", "")
            return Segments(thought, end, opened, "", (head,), self._literal(after), "")
        literal, schemas = self._literal, count()
        heads = tuple(literal(calls.head(tool.name)) for tool in tools)
        tail, link = literal(calls.after_arguments + calls.end), literal(calls.link if parallel else "")
        pairs = calls.pairs
        if pairs is None:
            return Segments(thought, end, opened, literal(calls.begin), heads, tail, link)
        parts = tuple(tuple(self._pair(each, pairs, schemas) for each in tool.parameters or ()) for tool in tools)
        return Segments(thought, end, opened, literal(calls.begin), heads, tail, link, parts, literal(pairs.between))

    def _pair(self, parameter: Parameter, form: PairForm, schemas: Iterator[int]) -> PairSegment:
        key, after = form.key(parameter.name), form.after_value
        if parameter.schema is not None:
            return PairSegment(self._literal(key), self._literal(after), parameter.required, next(schemas))
        key, after = self._literal(key + form.quote), self._literal(form.after_text)
        if parameter.texts:
            return PairSegment(key, after, parameter.required, texts=tuple(map(self._literal, parameter.texts)))
        null = (self._literal("null"),) if parameter.nullable else ()
        text = self._text(parameter, form) + (' & ~"null"' if null else "")
        text = f"start: TEXT\nTEXT: {text}"
        return PairSegment(key, after, parameter.required, texts=null, text=text, strings=parameter.strings)

    def _text(self, parameter: Parameter, form: PairForm) -> str:
        """The expression of a value without quotes, which cannot contain what ends it."""
        found = bare_strings(parameter.strings)
        assert found is not None
        if self._is_token(form.after_text):
            return found.terminal
        return f"{found.terminal} & ~({_ANY} {_quoted(form.after_text.strip())} {_ANY})"

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

    def _calls(self, tools: Sequence[CalledTool], *, parallel: bool, leads: bool) -> list[str]:
        form = self._form.calls
        # Beside an answer that is JSON, too, a head must be made of JSON's own signs: the lexer does not go back.
        spelled = _json_signs if leads and not form.pairs and form.lead not in self._added else self._literal
        # Without a mark, what begins the calls is one literal with the first head: what is said may begin like it.
        opening = "" if form.marked else form.begin
        heads, schemas, first = list[str](), 0, "first" if opening else "call"
        for at, tool in enumerate(tools):
            heads.append(f"call_{at}: {spelled(form.head(tool.name))} arguments_{at}")
            if opening:
                heads.append(f"first_{at}: {self._literal(opening + form.head(tool.name))} arguments_{at}")
            if form.pairs is None or tool.parameters is None:
                heads.append(f"arguments_{at}: schema_{schemas}")
            else:
                heads += self._pairs(at, tool.parameters, form.pairs, schemas)
            schemas += _schemas(tool)
        more = f" ({self._literal(form.link)} call){{0,{MAX_CALLS - 1}}}" if parallel and form.link else ""
        lead = f"{self._literal(form.lead)}{'' if leads else '?'} " if form.lead in self._added else ""
        alike = [f"{name}: {' | '.join(f'{name}_{at}' for at in range(len(tools)))}" for name in {first, "call"}]
        return [f"calls: {lead}{first}{more} {self._literal(form.after_arguments + form.end)}", *sorted(alike), *heads]

    def _pairs(self, tool: int, parameters: Sequence[Parameter], form: PairForm, schemas: int) -> list[str]:
        """The rules of a tool's arguments, in order; `more_x_y` has those from the y-th on, after other arguments."""
        lines, firsts, between = list[str](), list[str](), self._literal(form.between)
        after, quote = self._literal(form.after_text), self._literal(form.quote)
        for at, parameter in enumerate(parameters):
            if parameter.texts:
                value = f"{quote} ({' | '.join(map(_quoted, parameter.texts))}) {after}"
            elif parameter.schema is not None:
                value = f"schema_{schemas} {self._literal(form.after_value)}"
                schemas += 1
            else:
                lazy = "" if self._is_token(form.after_text) else "[lazy]"
                value = f"{quote} text_{tool}_{at}" + (f" {after}" if not lazy else "")
                text = self._text(parameter, form)
                text = f'(({text}) | "null")' if parameter.nullable else f"({text})"
                lines.append(f"text_{tool}_{at}{lazy}: TEXT_{tool}_{at}" + (f" {after}" if lazy else ""))
                lines.append(f"TEXT_{tool}_{at}: {text}")
            pair = f"pair_{tool}_{at}"
            lines.append(f"{pair}: {self._literal(form.key(parameter.name))} {value}")
            whole = f"({between} {pair})" + ("" if parameter.required else "?")
            lines.append(f"more_{tool}_{at}: {whole} more_{tool}_{at + 1}")
            if not any(each.required for each in parameters[:at]):
                firsts.append(f"{pair} more_{tool}_{at + 1}")
        if not any(each.required for each in parameters):
            firsts.append('""')
        return [*lines, f'more_{tool}_{len(parameters)}: ""', f"arguments_{tool}: {' | '.join(firsts)}"]

    def _is_token(self, mark: str) -> bool:
        return self._pieces.match(mark) is not None

    def _literal(self, text: str) -> str:
        """The text with its special tokens as tokens."""
        pieces = filter(None, self._pieces.split(text))
        return " ".join(f"<[{self._added[each]}]>" if each in self._added else _quoted(each) for each in pieces)


def _schemas(tool: CalledTool) -> int:
    """How many schemas bind a tool's arguments."""
    return 1 if tool.parameters is None else sum(each.schema is not None for each in tool.parameters)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _json_signs(text: str) -> str:
    return " ".join(map(_quoted, _SIGNS.findall(text)))


def _but_for(beginnings: Sequence[str], expression: str) -> str:
    """The expression, restricted to texts without these beginnings."""
    others = "".join(f" & ~({_GAP} {_quoted(each)} {_ANY})" for each in beginnings)
    return f"({expression}){others}" if others else expression
