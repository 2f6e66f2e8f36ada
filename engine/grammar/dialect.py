"""Adapts JSON schemas to llguidance: what it interprets differently from JSON Schema (2020-12) is rewritten before
compilation, or refused with the keyword's name.

llguidance counts in doubles, allows a known key again where any key is allowed, and compiles schemas that no text can
satisfy. Unknown keywords and formats are annotations, as in the standard.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard
from urllib.parse import unquote

from thothy_ai.engine.api.errors import GrammarError

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions  # exported nowhere else

COMPACT: JsonCompileOptions = {  # no optional white space, so that separators are forced
    "whitespace_flexible": False,
    "item_separator": ",",
    "key_separator": ":",
}
_SPACED = ": "  # what models are used to; after a bare colon, small ones tend to close arrays at once
_NAMED_ESCAPES = 'nrbtf\\"'  # with numeric escapes, llguidance would take a known key for another

_CHILD = ("items", "additionalProperties", "additionalItems")
_CHILDREN = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED_CHILDREN = ("properties", "patternProperties", "$defs", "definitions")
_OF_KEYS = {"properties", "patternProperties", "required", "additionalProperties"}
_VALUES = {"const", "enum", "default", "examples"}
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_LOWER, _UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
_MERGING = ("allOf", "anyOf", "oneOf", "$ref")  # llguidance merges these with what stands beside them
_MAX_EXACT = 2**53 - 1  # up to here, integers are exact as doubles
_MAX_INT64 = 2**63 - 1  # exact as `maximum`, since it is llguidance's own limit
_MAX_UINT32 = 2**32 - 1
_MAX_REMAINDERS = 20_000  # compiled in a quarter of a second
_DEFINITIONS = {"$defs", "definitions"}  # reached only through references
_MAX_LEVELS = 1_000  # llguidance's stack lasts for some 2,000
_MAX_OPTIONAL = 490  # llguidance takes four items for each, of 2,000
_JUST_BEYOND = 1e-12

# Existing dates, in years that every library accepts; no leap seconds, which hardly any library accepts.
_YEAR = "[1-9][0-9]{3}"
_LEAP_YEAR = "(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|1[26]|[3579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_PATTERNS = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}T{_TIME}$"}
_FORMATS = frozenset({"duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"})  # known to llguidance


class Rewritten(NamedTuple):
    """The input of llguidance: a schema (JSON text) and its options. `colon` is the separator after a key."""

    schema: str
    colon: str
    options: JsonCompileOptions


def source_of(schema: str) -> Rewritten:
    """Rewrite a schema (JSON text) for llguidance; GrammarError names a keyword that its texts could violate."""
    try:
        root = json.loads(schema)
        if not isinstance(root, dict):
            raise GrammarError("not a JSON schema: expected an object")
        dialect = _Dialect(root)
        rewritten = dialect.rewritten(root, "#")
        _check_states(dialect.divisors)
    except RecursionError as error:
        raise GrammarError("not a JSON schema: it is nested too deeply") from error
    except ValueError as error:
        raise GrammarError(f"not a JSON schema: {error}") from error
    if rewritten is False:
        raise GrammarError("no value that ends can match the schema: what it requires leads back to itself")
    options, colon = COMPACT.copy(), _SPACED if dialect.has_empty_arrays else ":"
    options["key_separator"] = colon
    if dialect.leaves_keys_open:
        options["json_allowed_escapes"] = _NAMED_ESCAPES
    same = json.dumps(rewritten) == json.dumps(root)  # compares texts, since 2 == 2.0
    return Rewritten(schema if same else json.dumps(rewritten), colon, options)


class _Dialect:
    """Rewrites one schema. Paths in errors are JSON pointers."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        references = set(_references(root))
        self._steps = {step for reference in references for step in _steps(reference)}
        nodes = list[Mapping[str, Any]]()
        self._collect(root, nodes)
        names = ({*_mapping(node, "properties"), *map(str, _list(node, "required"))} for node in nodes)
        self._names = set[str]().union(*names)
        closed = (node.get("additionalProperties", True) is False for node in nodes if node.keys() & _OF_KEYS)
        patterned = any(_mapping(node, "patternProperties") for node in nodes)
        self.leaves_keys_open = bool(self._names or patterned) and not all(closed)
        self.divisors = [node["multipleOf"] for node in nodes if _is_number(node.get("multipleOf"))]
        self.has_empty_arrays = any(map(_may_be_empty, nodes))
        merges = any(name in node for node in nodes for name in _MERGING)
        if merges:
            _check_divisors(self.divisors)
        bounds = [(name, node[name]) for node in nodes for name in (*_LOWER, *_UPPER) if _is_number(node.get(name))]
        between = [(name, value) for name, value in bounds if math.isfinite(value) and value != math.floor(value)]
        self._floors = {math.floor(value) for name, value in between if name in _UPPER}
        self._ceilings = {math.ceil(value) for name, value in between if name in _LOWER}
        self._check_depth()
        self._ending = set[str]()  # references to values that can end: the least fixed point
        targets = {reference: self._target(reference) for reference in references}
        users: dict[str, set[str]] = {reference: set() for reference in references}
        for user, target in targets.items():
            for used in _references(target):
                users[used].add(user)
        queue = [*references]
        while queue:
            reference = queue.pop()
            if reference not in self._ending and self._ends(targets[reference]):
                self._ending.add(reference)
                queue += users[reference]

    def rewritten(self, node: Any, path: str) -> Any:  # noqa: ANN401  JSON in, JSON out
        """The schema rewritten; False, which llguidance never begins, if no finite value can match it."""
        if not isinstance(node, Mapping):
            return node
        if not self._ends(node):
            return False
        new = self._mapped(node, self.rewritten, path)
        new.pop("x-guidance", None)  # llguidance's own options, which would change the separators
        if new.get("uniqueItems") is False:
            del new["uniqueItems"]
        _count(new, path)
        self._bound(new, path)
        if not isinstance(new.get("items"), list):
            new.pop("additionalItems", None)  # has no effect here, but llguidance would ignore `prefixItems`
        elif "prefixItems" in new:
            raise GrammarError(f"{path}/items: a list of schemas beside prefixItems; give one schema")
        self._list_keys(new, path)
        _take_format(new)
        return new

    def _mapped(self, node: Mapping[str, Any], change: Callable[[Any, str], Any], path: str) -> dict[str, Any]:
        """A schema with all its subschemas changed, including those that only references lead to."""
        new = dict[str, Any]()
        for key, value in node.items():
            at = f"{path}/{key}"
            if key in _NAMED_CHILDREN and isinstance(value, Mapping):
                new[key] = {name: change(child, f"{at}/{name}") for name, child in value.items()}
            elif key in _CHILDREN and isinstance(value, list):
                new[key] = [change(child, f"{at}/{place}") for place, child in enumerate(value)]
            elif key in _CHILD or (key in self._steps - _VALUES and isinstance(value, Mapping)):
                new[key] = change(value, at)
            else:
                new[key] = value
        return new

    def _collect(self, node: object, nodes: list[Mapping[str, Any]]) -> None:
        if isinstance(node, Mapping):
            nodes.append(node)
            self._mapped(node, lambda child, _: self._collect(child, nodes), "")

    def _ends(self, node: object) -> bool:
        """Whether a finite value can match, judged by references and required parts."""
        if not isinstance(node, Mapping):
            return True
        reference = node.get("$ref")
        if isinstance(reference, str) and reference not in self._ending:
            return False
        if not all(map(self._ends, _list(node, "allOf"))):
            return False
        for choices in filter(None, (_list(node, "anyOf"), _list(node, "oneOf"))):
            if not any(map(self._ends, choices)):
                return False
        types = node.get("type")
        types = [types] if isinstance(types, str) else types
        if node.keys() & {"const", "enum"} or not isinstance(types, list):
            return True
        return not types or any(self._type_ends(node, name) for name in types)

    def _type_ends(self, node: Mapping[str, Any], name: object) -> bool:
        if name == "object":
            known, others = _mapping(node, "properties"), node.get("additionalProperties", True)
            return all(self._ends(known.get(str(key), others)) for key in _list(node, "required"))
        if name == "array":
            items, prefix, least = node.get("items", True), _list(node, "prefixItems"), node.get("minItems", 0)
            if isinstance(items, list):
                items, prefix = node.get("additionalItems", True), items
            least = int(least) if _is_number(least) and math.isfinite(least) else 0
            return all(map(self._ends, prefix[:least])) and (least <= len(prefix) or self._ends(items))
        return True

    def _check_depth(self) -> None:
        """Refuse long chains of references: llguidance follows them recursively, and a stack overflow would end the
        process.
        """
        seen, path = set[str](), [iter(list[Any]([self._root]))]
        while path:
            node = next(path[-1], None)
            if node is None:
                path.pop()
                continue
            children = list[Any]()
            if isinstance(node, Mapping):
                reference = node.get("$ref")
                if isinstance(reference, str) and reference not in seen:
                    seen.add(reference)
                    children.append(self._target(reference))
                children += [child for name, child in node.items() if name not in _DEFINITIONS]
            else:
                children += node
            path.append(iter([child for child in children if isinstance(child, Mapping | list)]))
            if len(path) > _MAX_LEVELS:
                raise GrammarError(
                    f"$ref: references lead through more than {_MAX_LEVELS:,} levels of schemas; write some of them out"
                )

    def _target(self, reference: str) -> Any:  # noqa: ANN401  any JSON value
        """The schema that a JSON pointer names; True if only llguidance can resolve or refuse it."""
        target: Any = self._root
        try:
            for step in _steps(reference):
                target = target[int(step)] if isinstance(target, list) else target[step]
        except (LookupError, TypeError, ValueError):
            return True
        return target if reference[:1] == "#" else True

    def _bound(self, node: dict[str, Any], path: str) -> None:
        """Make numbers exact, and move bounds that llguidance would take as inclusive by a tiny amount."""
        for bound, exclusive in (_LOWER, _UPPER):
            flag = node.get(exclusive)
            if isinstance(flag, bool):  # draft 4
                del node[exclusive]
                if flag and bound in node:
                    node[exclusive] = node.pop(bound)
        for name in (*_LOWER, *_UPPER, "multipleOf", "const", "enum"):
            if name in node and not (name == "maximum" and node[name] == _MAX_INT64):
                for number in filter(_is_number, _within(node[name])):
                    if abs(number) > _MAX_EXACT:
                        says = f"{number} is beyond ±{_MAX_EXACT:,} and would be rounded; use a string"
                        raise GrammarError(f"{path}/{name}: {says}")
        lower, upper = node.get("exclusiveMinimum"), node.get("exclusiveMaximum")
        if _is_number(lower) and lower >= 0 and lower in self._floors:
            node["exclusiveMinimum"] = max(math.nextafter(lower, math.inf), lower + _JUST_BEYOND)
        if _is_number(upper) and upper <= 0 and upper in self._ceilings:
            node["exclusiveMaximum"] = min(math.nextafter(upper, -math.inf), upper - _JUST_BEYOND)

    def _list_keys(self, node: dict[str, Any], path: str) -> None:
        optional = _optional_run(node)
        if optional > _MAX_OPTIONAL:
            raise GrammarError(
                f"{path}/properties: {optional:,} optional properties in a row; at most {_MAX_OPTIONAL}"
                " are possible; require some, or divide them into objects"
            )
        patterns, required = _mapping(node, "patternProperties"), len({*map(str, _list(node, "required"))})
        missing = node.get("minProperties", 0) - required
        if missing <= 0:
            node.pop("minProperties", None)
        elif missing > 1 and (patterns or node.get("additionalProperties", True) is not False):
            raise GrammarError(
                f"{path}/minProperties: {node['minProperties']} different keys cannot be asked for, since equal ones"
                " are not told apart; name them in required"
            )
        for pattern in patterns:
            if _matches_only(pattern, self._names):
                raise GrammarError(
                    f"{path}/patternProperties: {pattern!r} matches nothing but keys that are listed; give them its"
                    " schema in properties"
                )


def _optional_run(node: Mapping[str, Any]) -> int:
    """The longest run of properties that are not required."""
    required = {*map(str, _list(node, "required"))}
    longest = run = 0
    for name in _mapping(node, "properties"):
        run = 0 if name in required else run + 1
        longest = max(longest, run)
    return longest


def _may_be_empty(node: Mapping[str, Any]) -> bool:
    """Whether the schema's own keywords, or the values of its undeclared keys, allow an empty array."""
    types = node.get("type")
    if types is None:
        return node.keys().isdisjoint(("const", "enum", *_MERGING))
    names = types if isinstance(types, list) else [types]
    if "object" in names and node.get("additionalProperties", True) is True:
        return True
    return "array" in names and not node.get("minItems") and node.get("maxItems") != 0


def _steps(reference: str) -> list[str]:
    """The keys of the JSON pointer in a reference."""
    steps = reference.removeprefix("#").split("/")[1:]
    return [unquote(step).replace("~1", "/").replace("~0", "~") for step in steps]


def _check_states(divisors: Sequence[float]) -> None:
    """Refuse divisors that take long to compile: llguidance keeps a state for each remainder."""
    numbers = [Decimal(str(divisor)) for divisor in divisors if math.isfinite(divisor)]
    states = sum(abs(int(each.scaleb(max(0, -int(each.normalize().as_tuple().exponent))))) for each in numbers)
    if states > _MAX_REMAINDERS:
        raise GrammarError(
            f"multipleOf: {states:,} remainders to be told apart; at most {_MAX_REMAINDERS:,} are possible in a schema;"
            " check the number afterwards"
        )


def _check_divisors(divisors: Sequence[float]) -> None:
    """Refuse two divisors whose product overflows when llguidance merges them."""
    largest = sorted((Decimal(str(divisor)) for divisor in divisors), reverse=True)[:2]
    if len(largest) == 2:
        places = max(0, *(-int(each.as_tuple().exponent) for each in map(Decimal, map(str, divisors))))
        if largest[0] * largest[1] * Decimal(10) ** (2 * places) > _MAX_UINT32:
            raise GrammarError(
                f"multipleOf: {largest[0]} and {largest[1]} are too large for a schema that merges others by allOf,"
                " anyOf, oneOf or $ref"
            )


def _matches_only(pattern: str, names: Set[str]) -> bool:
    """Whether a pattern matches only strings among the names; llguidance would begin a key that can't be completed."""
    from llguidance import LLMatcher, LLTokenizer  # noqa: PLC0415  an engine without grammars does not need it

    matching = set(names)
    with suppress(re.error):  # llguidance's syntax is different
        matching = {name for name in names if re.search(pattern, name)}
    if not matching:
        return False
    schema = {
        "type": "object",
        "properties": dict.fromkeys(matching, False),
        "patternProperties": {pattern: True},
        "additionalProperties": False,
    }
    matcher = LLMatcher(LLTokenizer("byte"), LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
    return matcher.consume_token(ord("{")) and not matcher.validate_tokens([ord('"')])


def _count(node: dict[str, Any], path: str) -> None:
    """Write 2.0 as 2 in keywords that count."""
    for name in _COUNTS:
        if name in node:
            value = node[name]
            if not _is_number(value) or value < 0 or not (isinstance(value, int) or value.is_integer()):
                raise GrammarError(f"{path}/{name}: expected a whole number that is not negative, got {value!r}")
            node[name] = int(value)


def _take_format(node: dict[str, Any]) -> None:
    """Replace dates and times by patterns that match existing ones; unknown formats are annotations."""
    name = node.get("format")
    if not isinstance(name, str) or name in _FORMATS:
        return
    del node["format"]
    if pattern := _PATTERNS.get(name):
        if "pattern" in node:
            node["allOf"] = [*_list(node, "allOf"), {"pattern": pattern}]
        else:
            node["pattern"] = pattern


def _within(value: object) -> Iterator[object]:
    """A JSON value, and all values in it."""
    yield value
    if isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _within(each)


def _references(value: object) -> Iterator[str]:
    for part in _within(value):
        if isinstance(part, dict) and isinstance(found := part.get("$ref"), str):
            yield found


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mapping(node: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = node.get(name)
    return found if isinstance(found, Mapping) else {}


def _list(node: Mapping[str, Any], name: str) -> list[Any]:
    found = node.get(name)
    return found if isinstance(found, list) else []
