"""Divides an answer, while it arrives, into what the model thinks, says and calls.

Text is held back only while it can be part of a mark. The result depends on the text alone, not on how it was split
into pieces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from thothy_ai.engine.api import CallDelta, ToolCall
from thothy_ai.engine.text.answer_form import AnswerForm
from thothy_ai.engine.text.parameters import CalledTool, Parameter

SPECIAL = "\udcff"  # precedes the name of a special token; decoded text never has a lone surrogate


class Gained(NamedTuple):
    """What the answer gained with a piece of text."""

    said: str = ""
    thoughts: str = ""
    calls: tuple[CallDelta, ...] = ()


class Marks:
    """A form's marks as they appear in a text. Marks that are tokens follow `SPECIAL`; spelled out as text, they are no
    marks. `added` are the ids of the tokenizer's added tokens by name, `special` those that are special and thus have
    no text.
    """

    def __init__(self, form: AnswerForm, added: Mapping[str, int], special: Container[str]) -> None:
        names = "|".join(map(re.escape, sorted(added, key=len, reverse=True))) or r"(?!)"
        self._name, self._special = re.compile(names), special
        self.form = form
        calls = form.calls
        pairs = (calls.pairs.key(""), calls.pairs.after_text) if calls.pairs else ()
        used = (*(form.thought or ()), *form.said, calls.begin, calls.head(""), calls.link, calls.end, *pairs)
        self.tokens = {added[name]: SPECIAL + name for text in used for name in self._name.findall(text)}

    def spelled(self, text: str) -> str:
        return self._name.sub(lambda found: SPECIAL + found[0], text)

    def plain(self, text: str) -> str:
        """A text in which marks mean nothing."""
        first, *others = text.split(SPECIAL)
        for part in others:
            found = self._name.match(part)
            first += part if found is None else ("" if found[0] in self._special else found[0]) + part[found.end() :]
        return first


class Divider:
    """Divides one answer, with calls of these tools. `opened`: it begins within a thought."""

    def __init__(self, marks: Marks, tools: Iterable[CalledTool], *, opened: bool) -> None:
        calls, spelled = marks.form.calls, marks.spelled
        self._marks = marks
        begin_thought, self._end_thought = map(spelled, marks.form.thought or ("", ""))
        begin_said, self._end_said = map(spelled, marks.form.said)
        starts = {begin_thought: self._in_thought, begin_said: self._at_answer}
        self._starts = {mark: step for mark, step in starts.items() if mark}
        self._heads = {spelled(calls.head(tool.name)): tool for tool in tools}
        self._link = spelled(calls.link)
        begin = spelled(calls.begin) if self._heads and calls.marked else ""
        # The answer may begin with one of these.
        self._starts_of_calls = [] if calls.marked else [spelled(calls.begin) + head for head in self._heads]
        self._unmarked = len(spelled(calls.begin))
        self._pairs = calls.pairs
        self._parameters: dict[str, Parameter] = {}  # of the tool that is being called, by what stands before the value
        self._parameter: Parameter | None = None
        self._end_value = spelled(calls.pairs.after_value) if calls.pairs else ""
        self._end_text = spelled(calls.pairs.after_text) if calls.pairs else ""
        self._end_pairs = spelled(calls.after_arguments or calls.end)
        ends = {begin: self._in_head, self._end_said: lambda: False}
        self._ends = {mark: step for mark, step in ends.items() if mark}
        self._held = ""
        self._step: Callable[[], bool] = self._in_thought if opened else self._at_start
        self._depth, self._in_string, self._escaped = 0, False, False  # in the arguments of a call
        self._new_said, self._new_thoughts, self._new_calls = "", "", list[CallDelta]()
        self._thoughts: list[str] = []
        self._calls: list[tuple[str, list[str]]] = []

    @property
    def tokens(self) -> dict[int, str]:
        """The text to push for each special token, which has none itself."""
        return self._marks.tokens

    @property
    def thinking(self) -> bool:
        """Whether the text is a thought at this point."""
        return self._step == self._in_thought

    @property
    def thoughts(self) -> str:
        """What it thought up to now."""
        return "".join(self._thoughts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """What it called up to now; the last call may lack its end."""
        return tuple(ToolCall(name, "".join(arguments)) for name, arguments in self._calls)

    def push(self, text: str) -> Gained:
        """Take a piece of the answer."""
        self._held += text
        while self._step():
            pass
        return self._gained()

    def flush(self) -> Gained:
        """Take the text that was held back, at the end of the answer. An incomplete mark is text."""
        if self.thinking:
            self._think(self._held.rstrip())
        elif self._step in (self._at_start, self._at_answer, self._in_said):
            self._say(self._held)
        self._held = ""
        return self._gained()

    # ---- steps: each takes what it can, and returns whether the next one may go on

    def _at_start(self) -> bool:
        text = self._held.lstrip()
        for mark, step in self._starts.items():
            if text.startswith(mark):
                return self._go_on(text[len(mark) :], step)
        if any(mark.startswith(text) for mark in self._starts):
            return False
        return self._go_on(self._held, self._at_answer)

    def _in_thought(self) -> bool:
        if not self._thoughts and not self._new_thoughts:
            self._held = self._held.lstrip()
        before, mark, after = self._held.partition(self._end_thought)
        if mark:
            self._think(before.rstrip())
            return self._go_on(after, self._after_thought)
        end = _certain(self._held, (self._end_thought,))
        self._think(self._held[:end])
        return self._go_on(self._held[end:])

    def _after_thought(self) -> bool:
        text = self._held.lstrip()
        return self._go_on(text, self._at_start) if text else False

    def _at_answer(self) -> bool:
        if self._starts_of_calls:
            text = self._held.lstrip()
            if any(text.startswith(start) for start in self._starts_of_calls):
                return self._go_on(text[self._unmarked :], self._in_head)
            if any(start.startswith(text) for start in self._starts_of_calls):
                return False
        return self._go_on(self._held, self._in_said)

    def _in_said(self) -> bool:
        found = {at: mark for mark in self._ends if (at := self._held.find(mark)) >= 0}
        if found:
            at = min(found)
            mark = found[at]
            self._say(self._held[:at].rstrip())
            return self._go_on(self._held[at + len(mark) :], self._ends[mark])
        end = _certain(self._held, self._ends) if self._ends else len(self._held)
        self._say(self._held[:end])
        return self._go_on(self._held[end:])

    def _in_head(self) -> bool:
        for head, tool in self._heads.items():
            text = self._held.removeprefix(head)
            if not self._held.startswith(head) or not self._is_head_before(text, tool):
                continue
            self._new_calls.append(CallDelta(len(self._calls), tool.name))
            self._calls.append((tool.name, []))
            return self._go_on(text, self._in_arguments if self._pairs is None else self._in_pairs)
        return False

    def _is_head_before(self, text: str, tool: CalledTool) -> bool:
        """Whether the head of this tool can precede the text: only what follows a name may end it."""
        if self._pairs is None:
            return True
        spelled, key = self._marks.spelled, self._pairs.key
        quotes = {each.name: "" if each.schema else self._pairs.quote for each in tool.parameters or ()}
        self._parameters = {spelled(key(each.name) + quotes[each.name]): each for each in tool.parameters or ()}
        return text.startswith((*self._parameters, self._end_pairs))

    def _in_arguments(self) -> bool:
        end = self._end_of_json(self._held)
        self._argue(self._held[:end])
        return self._go_on(self._held[end:], None if self._depth or not end else self._after_arguments)

    def _end_of_json(self, text: str, *, scalars: bool = False) -> int:
        """Where a JSON text that has begun earlier, or here, ends; the end of `text` if it continues. `scalars`: it
        need not be an object, and then ends before a character that JSON does not allow outside of strings.
        """
        for at, sign in enumerate(text):  # few characters at a time
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped, self._in_string = sign == "\\", sign != '"'
            elif sign == '"':
                self._in_string = True
            elif sign in "{[":
                self._depth += 1
            elif scalars and not self._depth and not (sign.isalnum() or sign in "+-."):
                return at
            elif sign in "]}":
                self._depth -= 1
                if not self._depth and not scalars:
                    return at + 1
        return len(text)

    def _in_pairs(self) -> bool:
        """Before a pair, or the end of the call."""
        assert self._pairs is not None
        written = self._calls[-1][1]
        text = self._held.removeprefix(self._pairs.between) if written else self._held
        for key, parameter in self._parameters.items():
            if text.startswith(key):
                self._parameter = parameter
                self._argue(f"{', ' if written else '{'}{json.dumps(parameter.name, ensure_ascii=False)}: ")
                if parameter.schema is not None:
                    return self._go_on(text[len(key) :], self._in_json)
                if parameter.nullable:
                    return self._go_on(text[len(key) :], self._at_nullable)
                if not parameter.texts:
                    self._argue('"')
                return self._go_on(text[len(key) :], self._in_text)
        if self._held.startswith(self._end_pairs):
            self._argue("}" if written else "{}")
            return self._go_on(self._held, self._after_arguments)
        return False

    def _in_json(self) -> bool:
        """In a JSON value, which does not include the text that ends it."""
        end = self._end_of_json(self._held, scalars=True)
        self._argue(self._held[:end])
        if end == len(self._held):
            return self._go_on("")
        return self._go_on(self._held[end:], self._after_value)

    def _after_value(self) -> bool:
        if not self._held.startswith(self._end_value):
            return False
        return self._go_on(self._held[len(self._end_value) :], self._in_pairs)

    def _at_nullable(self) -> bool:
        """Before a value without quotes, for which `null` means no value."""
        null = "null" + self._end_text
        if self._held.startswith(null):
            self._argue("null")
            return self._go_on(self._held[len(null) :], self._in_pairs)
        if null.startswith(self._held):
            return False
        self._argue('"')
        return self._go_on(self._held, self._in_text)

    def _in_text(self) -> bool:
        """In a value without quotes, or in one of the listed ones, which is taken as a whole."""
        assert self._parameter is not None
        for listed, value in self._parameter.texts.items():
            if self._held.startswith(listed + self._end_text) and len(self._held) > len(listed):
                self._argue(value)
                return self._go_on(self._held[len(listed + self._end_text) :], self._in_pairs)
        if self._parameter.texts:
            return False
        before, mark, after = self._held.partition(self._end_text)
        end = len(before) if mark else _certain(before, (self._end_text,))
        self._argue(json.dumps(self._marks.plain(before[:end]), ensure_ascii=False)[1:-1] + ('"' if mark else ""))
        return self._go_on(after if mark else before[end:], self._in_pairs if mark else None)

    def _after_arguments(self) -> bool:
        if self._link and self._held.startswith(self._link):
            return self._go_on(self._held[len(self._link) :], self._in_head)
        return False

    def _go_on(self, held: str, step: Callable[[], bool] | None = None) -> bool:
        """Hold back this text, and continue with another step, if given."""
        self._held = held
        self._step = step or self._step
        return step is not None

    def _argue(self, text: str) -> None:
        if text:
            self._calls[-1][1].append(text)
            self._new_calls.append(CallDelta(len(self._calls) - 1, arguments=text))

    def _think(self, text: str) -> None:
        self._new_thoughts += self._marks.plain(text)

    def _say(self, text: str) -> None:
        self._new_said += self._marks.plain(text)

    def _gained(self) -> Gained:
        gained = Gained(self._new_said, self._new_thoughts, tuple(self._new_calls))
        self._new_said, self._new_thoughts = "", ""
        self._new_calls = []
        self._thoughts += [gained.thoughts] if gained.thoughts else []
        return gained


def _certain(text: str, marks: Iterable[str]) -> int:
    """How much of a text can neither be part of a mark after it nor white space before one."""
    end = len(text)
    for mark in marks:
        for count in range(min(len(mark) - 1, len(text)), 0, -1):
            if text.endswith(mark[:count]):
                end = min(end, len(text) - count)
                break
    return len(text[:end].rstrip())
