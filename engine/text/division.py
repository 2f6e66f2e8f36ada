"""Divides an answer, as it comes, into what the model thinks, says and calls.

Nothing is kept for longer than it may be part of a mark. What is gained depends on the text alone, not on how it comes
in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from thothy_ai.engine.api import CallDelta, ToolCall
from thothy_ai.engine.text.answer_form import AnswerForm

SPECIAL = "\udcff"  # before the name of a special token: decoded text has no lone surrogate


class Gained(NamedTuple):
    """What came with a piece of text."""

    said: str = ""
    thoughts: str = ""
    calls: tuple[CallDelta, ...] = ()


class Marks:
    """A form's marks as a text has them: those that are tokens of their own come after `SPECIAL`, and are no marks if
    they are spelled out. `added` are the ids of the tokenizer's added tokens by their names, `special` those of them
    that are special, and have no text.
    """

    def __init__(self, form: AnswerForm, added: Mapping[str, int], special: Container[str]) -> None:
        names = "|".join(map(re.escape, sorted(added, key=len, reverse=True))) or r"(?!)"
        self._name, self._special = re.compile(names), special
        self.form = form
        calls = form.calls
        used = (*(form.thought or ()), *form.said, calls.begin, calls.head(""), calls.link, calls.end)
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
    """Divides one answer, with calls of the tools of these names. `opened`: it begins within a thought."""

    def __init__(self, marks: Marks, names: Iterable[str], *, opened: bool) -> None:
        calls, spelled = marks.form.calls, marks.spelled
        self._marks = marks
        begin_thought, self._end_thought = map(spelled, marks.form.thought or ("", ""))
        begin_said, self._end_said = map(spelled, marks.form.said)
        starts = {begin_thought: self._in_thought, begin_said: self._at_answer}
        self._starts = {mark: step for mark, step in starts.items() if mark}
        self._heads = {spelled(calls.head(name)): name for name in names}
        self._link = spelled(calls.link)
        begin = spelled(calls.begin) if self._heads else ""
        self._at_heads = bool(self._heads) and not begin  # the answer may begin with one
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
        """What to push for these tokens, which have no text."""
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
        """Take what was held back, at the end of the answer. A mark that is not complete is none."""
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
        if self._at_heads:
            text = self._held.lstrip()
            if any(text.startswith(head) for head in self._heads):
                return self._go_on(text, self._in_head)
            if any(head.startswith(text) for head in self._heads):
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
        for head, name in self._heads.items():
            if self._held.startswith(head):
                self._new_calls.append(CallDelta(len(self._calls), name))
                self._calls.append((name, []))
                return self._go_on(self._held[len(head) :], self._in_arguments)
        return False

    def _in_arguments(self) -> bool:
        text, end = self._held, len(self._held)
        for at, sign in enumerate(text):  # a JSON text: few characters at a time
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped, self._in_string = sign == "\\", sign != '"'
            elif sign == '"':
                self._in_string = True
            elif sign in "{[":
                self._depth += 1
            elif sign in "]}":
                self._depth -= 1
                if not self._depth:
                    end = at + 1
                    break
        if end:
            self._calls[-1][1].append(text[:end])
            self._new_calls.append(CallDelta(len(self._calls) - 1, arguments=text[:end]))
        return self._go_on(text[end:], None if self._depth or not end else self._after_arguments)

    def _after_arguments(self) -> bool:
        if self._link and self._held.startswith(self._link):
            return self._go_on(self._held[len(self._link) :], self._in_head)
        return False

    def _go_on(self, held: str, step: Callable[[], bool] | None = None) -> bool:
        """Hold this, and go on with another step if there is one."""
        self._held = held
        self._step = step or self._step
        return step is not None

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
