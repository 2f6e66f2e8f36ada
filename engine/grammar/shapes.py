"""A JSON schema as the shapes of its values, in llguidance's interpretation: what can be written, and the shortest.

A shape is any of several kinds of value: strings, numbers, words such as `null`, arrays, objects. The keywords of a
schema and its `allOf` are intersected first. UnknownError if the schema uses something that is not understood.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple
from urllib.parse import unquote

from thothy_ai.engine.grammar.expressions import escaped
from thothy_ai.engine.grammar.keywords import KEYWORDS, Keywords, UnknownError
from thothy_ai.engine.grammar.matching import Options, Pattern, PatternError
from thothy_ai.engine.grammar.numbers import Limits, Number
from thothy_ai.engine.grammar.patterns import searched
from thothy_ai.engine.grammar.texts import Text, matches
from thothy_ai.engine.grammar.tokens import JsonTokens

_MAX_SHAPES = 5_000
_MAX_CHOICES = 4_096  # combinations per value
_MAX_DEPTH = 64  # of nested schemas
_MAX_INTERSECTED = 20_000
_MAX_PASSES = 16  # forwards and backwards, to find the costs of recursive shapes
_ENDLESS = 2**20  # tokens
_NUMBER_SIGNS = 24
_OTHER_KEY = b'"quotation":'  # as long as most undeclared keys


class Cost(NamedTuple):
    """Tokens of a shortest text, and how many of them are free choices."""

    tokens: int
    choices: int = 0

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        return Cost(self.tokens + other.tokens, self.choices + other.choices)


@dataclass(frozen=True)
class Word:
    """The word `null`, `true` or `false`."""

    data: bytes


class List:
    """Arrays: the shapes of their first items, and of further ones; None if there are none."""

    def __init__(self, first: Sequence[Shape], more: Shape | None, least: int, most: int | None) -> None:
        self._first, self._more, self.least = first, more, least
        self.longest_key = 0
        self._most = most if more is not None else len(first) if most is None else min(most, len(first))

    @property
    def parts(self) -> list[Shape]:
        return [each for each in (*self._first, self._more) if each is not None]

    def item(self, index: int) -> Shape | None:
        """The shape of this item; None if there is no such item."""
        if self._most is not None and index >= self._most:
            return None
        return self._first[index] if index < len(self._first) else self._more

    def cost(self, count: int) -> Cost | None:
        """The cost of the end after `count` items."""
        total = Cost(1)
        first = max(count, len(self._first))
        for index in range(count, min(self.least, first)):
            item = self._first[index]
            if item.cost is None:
                return None
            total += Cost(bool(index)) + item.cost
        if (further := self.least - first) > 0:
            if self._more is None or self._more.cost is None:
                return None
            total += Cost(further * (1 + self._more.cost.tokens) - (not first), further * self._more.cost.choices)
        return total


class Property(NamedTuple):
    key: bytes  # in JSON, with its quotation marks
    shape: Shape
    required: bool


class Record:
    """Objects: their declared properties, in order, then keys that match patterns, then others."""

    def __init__(
        self, properties: Sequence[Property], others: Sequence[tuple[Text, Shape]], least: int, colon: bytes
    ) -> None:
        self.properties, self.others, self.least, self.colon = properties, others, least, colon
        self.longest_key = max((len(each.key) for each in properties), default=0)  # bytes
        self._costs: list[Cost | None] = []

    @property
    def parts(self) -> list[Shape]:
        return [*(each.shape for each in self.properties), *(each for _, each in self.others)]

    def cost(self, at: int, written: int, tokens: JsonTokens) -> Cost | None:
        """The cost of the end, if properties from `at` on can follow and `written` members were written."""
        if not self._costs:
            found: Cost | None = Cost(1)
            self._costs.append(found)
            for key, shape, required in reversed(self.properties):
                if required:
                    entry = shape.cost and Cost(tokens.count(b"," + key + self.colon)) + shape.cost
                    found = None if found is None or entry is None else entry + found
                self._costs.append(found)
            self._costs.reverse()
        total = self._costs[at]
        if total is None or not self.least:
            return total
        lacking = self.least - written - sum(each.required for each in self.properties[at:])
        for key, shape, required in self.properties[at:]:
            if lacking > 0 and not required and shape.cost is not None and total is not None:
                total, lacking = total + Cost(tokens.count(b"," + key + self.colon)) + shape.cost, lacking - 1
        if lacking > 0 and total is not None:
            cost = next((shape.cost for _, shape in self.others if shape.cost is not None), None)
            return None if cost is None else total + Cost(lacking * (6 + cost.tokens), lacking * cost.choices)
        return total


Kind = Text | Number | Word | List | Record


@dataclass(eq=False)
class Shape:
    """`cost`: of its shortest value; None if it has none, or while it is unknown."""

    kinds: list[Kind] = field(default_factory=list)
    same: list[Shape] = field(default_factory=list)  # shapes whose kinds it includes
    cost: Cost | None = None
    best: Kind | None = None

    def all_kinds(self) -> list[Kind]:
        """Its kinds, and those of the shapes in `same`."""
        if self.same:
            found, left = dict.fromkeys([self]), [self]
            while left:
                for each in left.pop().same:
                    if each not in found:
                        found[each] = None
                        left.append(each)
            self.kinds, self.same = [kind for shape in found for kind in shape.kinds], []
        return self.kinds


class Shapes:
    """Makes the shapes of a schema (JSON text), in whose texts `colon` follows keys. UnknownError if it is not
    understood.

    `root` is the shape of whole texts. In tokens: `opens` is the most by which punctuation can delay the end by opening
    something, `inside` the most by which a token can within a string or a number, and `nested` the most by which any
    token can; `longest` is a text's largest distance from its end. `may_be_number`: a text can be a number alone.
    """

    def __init__(self, schema: str, tokens: JsonTokens, colon: bytes = b":") -> None:
        self._tokens, self._schema, self._colon = tokens, json.loads(schema), colon
        self._made: dict[str, Shape] = {}
        self._shapes: list[Shape] = []
        self._intersected = 0  # schemas
        self._waiting: list[tuple[Shape, Any]] = []
        try:
            self.root = self._shape(self._schema)
            while self._waiting:
                shape, node = self._waiting.pop()
                self._fill(shape, node)
            self._measure()
            self.longest = self._longest(self.root, {})
        except (PatternError, TypeError, ValueError, KeyError, AttributeError, IndexError, RecursionError) as error:
            raise UnknownError(str(error)) from error
        kinds = [kind for shape in self._shapes for kind in shape.all_kinds()]
        self.inside = max((self._inside(kind) for kind in kinds), default=0)
        self.opens = max((self._opens(shape) for shape in self._shapes), default=0)
        self.nested = min(self.longest, self._tokens.most_openings * self.opens + self.inside)
        self.may_be_number = any(isinstance(kind, Number) and not kind.fixed for kind in self.root.kinds)

    def _shape(self, node: Any) -> Shape:  # noqa: ANN401  any JSON value
        """The shape of a schema, which is filled later; the same for equal schemas."""
        name = json.dumps(node)
        if name not in self._made:
            if len(self._shapes) >= _MAX_SHAPES:
                raise UnknownError("the schema has too many parts")
            shape = self._made[name] = Shape()
            self._shapes.append(shape)
            self._waiting.append((shape, node))
        return self._made[name]

    def _fill(self, shape: Shape, node: Any) -> None:  # noqa: ANN401  any JSON value
        if isinstance(node, dict) and "$ref" in node and not node.keys() & KEYWORDS - {"$ref"}:
            shape.same.append(self._shape(self._target(node["$ref"])))
            return
        for keywords in self._alternatives(node, 0):
            shape.kinds += self._kinds(keywords) if keywords.options is None else self._listed(keywords)

    def _together(self, nodes: Sequence[Any]) -> Shape:
        """The shape of the values that all these schemas allow."""
        return self._shape(nodes[0] if len(nodes) == 1 else {"allOf": [*nodes]})

    def _target(self, reference: str) -> Any:  # noqa: ANN401  any JSON value
        if not reference.startswith("#"):
            raise UnknownError(f"a reference to {reference}")
        node = self._schema
        for step in reference[1:].split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            node = node[int(name)] if isinstance(node, list) else node[name]
        return node

    def _alternatives(self, node: Any, depth: int) -> list[Keywords]:  # noqa: ANN401  any JSON value
        """Alternative sets of keywords, of which a value must match one."""
        if isinstance(node, bool):
            return [Keywords.of({})] * node
        self._intersected += 1
        if depth > _MAX_DEPTH or self._intersected > _MAX_INTERSECTED:
            raise UnknownError("references of references")
        found = [Keywords.of(node)]
        parts = [[self._target(node["$ref"])]] if "$ref" in node else []
        parts += [[each] for each in node.get("allOf", ())]
        parts += [node[name] for name in ("anyOf", "oneOf") if name in node]
        for choices in parts:
            others = [each for choice in choices for each in self._alternatives(choice, depth + 1)]
            if len(found) * len(others) > _MAX_CHOICES:
                raise UnknownError("a value has too many alternatives")
            found = [both for one in found for other in others if (both := one.and_(other)) is not None]
        return found

    def _kinds(self, keywords: Keywords) -> list[Kind]:
        found: list[Kind] = []
        for name in keywords.types:
            match name:
                case "null":
                    found.append(Word(b"null"))
                case "boolean":
                    found += Word(b"true"), Word(b"false")
                case "number" | "integer":
                    found.append(Number(keywords.limits._replace(whole=keywords.limits.whole or name == "integer")))
                case "string":
                    found.append(Text(keywords.string_rules(), self._tokens))
                case "array":
                    first = [self._shape(each) for each in keywords.first]
                    more = None if False in keywords.items else self._together(keywords.items)
                    found.append(List(first, more, keywords.least_items, keywords.most_items))
                case "object":
                    found.append(self._record(keywords))
        return found

    def _record(self, keywords: Keywords) -> Record:
        properties: list[Property] = []
        patterns = {name: Pattern(searched(name)) for name in keywords.matching}
        for name in dict.fromkeys((*keywords.properties, *keywords.required)):
            shape = self._together(keywords.property(name))
            properties.append(Property(b'"' + escaped(name) + b'"', shape, name in keywords.required))
        taken = frozenset((*keywords.properties, *keywords.required))
        others = [
            (Text([patterns[name]], self._tokens, taken=taken), self._shape(node))
            for name, node in keywords.matching.items()
            if node is not False
        ]
        if False not in keywords.others:
            key = Text([], self._tokens, taken=taken, claimed=[*patterns.values()])
            others.append((key, self._together(keywords.others)))
        return Record(properties, others, keywords.least_properties, self._colon)

    def _listed(self, keywords: Keywords) -> list[Kind]:
        """The kinds of those enumerated values that the other keywords allow."""
        found, options = list[Kind](), keywords.options or ()
        strings = [option for option in options if isinstance(option, str)]
        if strings and "string" in keywords.types:
            others = keywords.string_rules()
            strings = [each for each in strings if all(matches(rule, each) for rule in others)]
            if strings:
                found.append(Text([Options(strings)], self._tokens))
        limits = keywords.limits._replace(whole=keywords.limits.whole or "number" not in keywords.types)
        for option in options:
            match option:
                case None if "null" in keywords.types:
                    found.append(Word(b"null"))
                case bool() if "boolean" in keywords.types:
                    found.append(Word(b"true" if option else b"false"))
                case int() | float() if not isinstance(option, bool) and {"integer", "number"} & {*keywords.types}:
                    value = Fraction(str(option))
                    if limits.allow(value):
                        found.append(Number(Limits(value, most=value, whole=value.denominator == 1)))
                case list() if "array" in keywords.types:
                    items = [self._shape({"const": each}) for each in option]
                    found.append(List(items, None, len(items), len(items)))
                case dict() if "object" in keywords.types:
                    entries = [
                        Property(b'"' + escaped(name) + b'"', self._shape({"const": each}), required=True)
                        for name, each in option.items()
                    ]
                    found.append(Record(entries, [], 0, self._colon))
        return found

    def _measure(self) -> None:
        """Find all shapes' costs, those of recursive ones from those of their parts."""
        for _ in range(_MAX_PASSES):
            changed = False
            self._shapes.reverse()
            for shape in self._shapes:
                for kind in shape.all_kinds():
                    cost = self.cost_of(kind)
                    if cost is not None and (shape.cost is None or cost < shape.cost):
                        shape.cost, shape.best, changed = cost, kind, True
            if not changed:
                break

    def cost_of(self, kind: Kind) -> Cost | None:
        """The cost of a kind's shortest value."""
        match kind:
            case Word(data):
                return Cost(self._tokens.count(data), 0)
            case Number():
                text = kind.end("")
                if text is None:
                    return None
                count = self._tokens.count(text.encode())
                return Cost(count, 0 if kind.fixed else count)
            case Text():
                end = kind.end(kind.start)
                if end is None:
                    return None
                count = self._tokens.count(b'"' + end + b'"')
                return Cost(count, 1 if kind.listed else count)
            case List():
                cost = kind.cost(0)
            case Record():
                kind._costs.clear()
                cost = kind.cost(0, 0, self._tokens)
        return None if cost is None else Cost(1) + cost

    def _inside(self, kind: Kind) -> int:
        match kind:
            case Text():
                return min(kind.rise * self._tokens.longest_bytes, kind.longest)
            case Number():
                return 3 if kind.limits.free else _NUMBER_SIGNS
        return 0

    def _opens(self, shape: Shape) -> int:
        """The most tokens by which a value of the shape, or an optional part of it, can delay the end."""
        costs = [cost.tokens for kind in shape.kinds if (cost := self.cost_of(kind)) is not None]
        found = max(costs, default=0) - (shape.cost.tokens if shape.cost else 0)
        for kind in shape.kinds:
            if isinstance(kind, Record):
                parts = [(key, each) for key, each, needed in kind.properties if not needed]
                parts += [(_OTHER_KEY, each) for _, each in kind.others]
                sizes = [
                    self._tokens.count(b"," + key + kind.colon) + each.cost.tokens for key, each in parts if each.cost
                ]
                found = max(found, *sizes, 0)
            elif isinstance(kind, List) and kind.item(kind.least) is not None:
                found = max(found, *(1 + each.cost.tokens for each in kind.parts if each.cost), 0)
        return found

    def _longest(self, shape: Shape, known: dict[Shape, int], depth: int = 0) -> int:
        """The most tokens from a value of the shape to its end; `_ENDLESS` if it is recursive or deep."""
        if shape in known or depth > _MAX_DEPTH:
            return known.get(shape, _ENDLESS)
        known[shape] = _ENDLESS  # while it is being computed
        found = 0
        for kind in shape.kinds:
            match kind:
                case Word(data):
                    far = len(data)
                case Number():
                    far = _NUMBER_SIGNS
                case Text():
                    far = 2 + kind.longest
                case List() | Record():
                    cost = self.cost_of(kind)
                    inside = max((self._longest(part, known, depth + 1) for part in kind.parts), default=0)
                    far = inside + (cost.tokens if cost else 0) + kind.longest_key + len(_OTHER_KEY)
            found = max(found, far)
        known[shape] = min(found, _ENDLESS)
        return known[shape]
