"""The keywords of a JSON schema, and their intersection for several schemas.

Raises UnknownError if a schema uses something that is not understood.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.engine.grammar.expressions import ANY, Expression, Repeat
from thothy_ai.engine.grammar.matching import Pattern, StringRule
from thothy_ai.engine.grammar.numbers import Limits
from thothy_ai.engine.grammar.patterns import searched
from thothy_ai.engine.grammar.texts import matches

TYPES = ("null", "boolean", "number", "string", "array", "object")
KEYWORDS = frozenset(
    [
        "$ref",
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "oneOf",
        "pattern",
        "patternProperties",
        "prefixItems",
        "properties",
        "required",
        "type",
    ]
)
_MAX_LEAST_BYTES = 2**17  # of a string; more than a context's tokens, and half a second's work
_FREE = Limits()
_OCTET = "(?:[0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_ATOM = r"[a-zA-Z0-9!#$%&'*+\-/=?\^_`{|}~]+"
_HOURS = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DAYS = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_GROUP = "[0-9a-fA-F]{1,4}"
_IPV6 = "|".join(
    [
        f"(?:{_GROUP}:){{7}}{_GROUP}",
        f"(?:(?:{_GROUP}:){{0,6}}{_GROUP})?::",
        *(
            f"(?:(?:{_GROUP}:){{0,{6 - after}}}{_GROUP})?::(?:{_GROUP}:){{{after - 1}}}{_GROUP}"
            for after in range(1, 7)
        ),
        f"::(?:{_GROUP}:){{6}}{_GROUP}",
    ]
)
_URI_SIGN = "(?:[a-zA-Z0-9\\-._~!$&'()*+,;=%s]|%%[0-9a-fA-F]{2})"
_SEGMENT = _URI_SIGN % ":@"
_HOST = rf"(?:\[(?:{_IPV6}|v[0-9a-fA-F]+\.[a-zA-Z0-9\-._~!$&'()*+,;=:]+)\]|{_URI_SIGN % ''}*)"
_AUTHORITY = rf"//(?:{_URI_SIGN % ':'}*@)?{_HOST}(?::[0-9]*)?"
_PATH = f"{_SEGMENT}+(?:/{_SEGMENT}*)*"
_QUERY = rf"(?:\?{_URI_SIGN % ':@/?'}*)?(?:#{_URI_SIGN % ':@/?'}*)?"
_URI = rf"[a-zA-Z][a-zA-Z0-9+\-.]*:(?:{_AUTHORITY}(?:/{_SEGMENT}*)*|/(?:{_PATH})?|(?:{_PATH})?){_QUERY}"
_FORMATS: Final = {
    "duration": f"P(?:{_DAYS}(?:{_HOURS})?|{_HOURS}|[0-9]+W)",
    "email": rf"{_ATOM}(?:\.{_ATOM})*@(?:{_LABEL}(?:\.{_LABEL})*|\[{_IPV4}\])",
    "hostname": r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*",
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "uuid": "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
}


class UnknownError(Exception):
    """The schema has something whose effect on its texts is not known."""


@dataclass(frozen=True)
class Keywords:
    """`types`: the allowed types; `options`: the enumerated values, None if any value is allowed. All of `items` apply
    to items after the `first` ones, all of `others` to undeclared properties.
    """

    types: tuple[str, ...] = TYPES
    options: tuple[Any, ...] | None = None
    limits: Limits = _FREE
    least_chars: int = 0
    most_chars: int | None = None
    patterns: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    first: tuple[Any, ...] = ()
    items: tuple[Any, ...] = ()
    least_items: int = 0
    most_items: int | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    matching: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[Any, ...] = ()
    required: tuple[str, ...] = ()
    least_properties: int = 0

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Keywords:
        """A schema's own keywords, without those of schemas that it refers to."""
        types, options = node.get("type", TYPES), node.get("enum")
        items, first = node.get("items", node.get("additionalItems", True)), node.get("prefixItems", ())
        if isinstance(items, list):
            first, items = items, node.get("additionalItems", True)
        return cls(
            types=(types,) if isinstance(types, str) else tuple(types),
            options=(node["const"],) if "const" in node else None if options is None else tuple(options),
            limits=Limits.of(node),
            least_chars=int(node.get("minLength", 0)),
            most_chars=int(node["maxLength"]) if "maxLength" in node else None,
            patterns=(node["pattern"],) if "pattern" in node else (),
            formats=(node["format"],) if "format" in node else (),
            first=tuple(first),
            items=(items,),
            least_items=int(node.get("minItems", 0)),
            most_items=int(node["maxItems"]) if "maxItems" in node else None,
            properties=node.get("properties", {}),
            matching=node.get("patternProperties", {}),
            others=(node.get("additionalProperties", True),),
            required=tuple(node.get("required", ())),
            least_properties=int(node.get("minProperties", 0)),
        )

    def and_(self, other: Keywords) -> Keywords | None:
        """The intersection with `other`; None if it allows no value."""
        types = tuple(name for name in self.types if name in other.types)
        numbers = (("number", "integer"), ("integer", "number"))  # integers are numbers
        if any(one in self.types and two in other.types for one, two in numbers) and not {"integer", "number"} & {
            *types
        }:
            types = (*types, "integer")
        options = self.options if other.options is None else other.options
        if self.options is not None and other.options is not None:
            theirs = [(type(option), option) for option in other.options]  # typed, since 1 == True
            options = tuple(option for option in self.options if (type(option), option) in theirs)
        if not types or options == ():
            return None
        names = dict.fromkeys((*self.properties, *other.properties))
        patterns = dict.fromkeys((*self.matching, *other.matching))
        claims = {name: [each.matching[name] for each in (self, other) if name in each.matching] for name in patterns}
        length = max(len(self.first), len(other.first))
        return Keywords(
            types=types,
            options=options,
            limits=self.limits.and_(other.limits),
            least_chars=max(self.least_chars, other.least_chars),
            most_chars=_least(self.most_chars, other.most_chars),
            patterns=tuple(dict.fromkeys(self.patterns + other.patterns)),
            formats=tuple(dict.fromkeys(self.formats + other.formats)),
            first=tuple({"allOf": [*self.item(index), *other.item(index)]} for index in range(length)),
            items=_distinct(self.items + other.items),
            least_items=max(self.least_items, other.least_items),
            most_items=_least(self.most_items, other.most_items),
            properties={name: {"allOf": [*self.property(name), *other.property(name)]} for name in names},
            matching={name: {"allOf": nodes} for name, nodes in claims.items()},
            others=_distinct(self.others + other.others),
            required=tuple(dict.fromkeys(self.required + other.required)),
            least_properties=max(self.least_properties, other.least_properties),
        )

    def item(self, index: int) -> Sequence[Any]:
        """The schemas of this item."""
        return self.first[index : index + 1] or self.items

    def property(self, name: str) -> Sequence[Any]:
        """The schemas of this property."""
        if name in self.properties:
            return [self.properties[name]]
        claims = [node for pattern, node in self.matching.items() if matches(Pattern(searched(pattern)), name)]
        return claims or self.others

    def string_rules(self) -> list[StringRule]:
        """The patterns, lengths and formats that strings must match."""
        return [*map(Pattern, self.string_expressions())]

    def string_expressions(self) -> list[Expression]:
        """The expressions that whole strings must match."""
        if unknown := [name for name in self.formats if name not in _FORMATS]:
            raise UnknownError(f"the format {unknown[0]}")
        patterns = [*self.patterns, *(f"^(?:{_FORMATS[name]})$" for name in self.formats)]
        found = [searched(pattern) for pattern in patterns]
        longest = max((expression.cost for expression in found), default=0)
        if max(longest, self.least_chars) > _MAX_LEAST_BYTES:
            raise GrammarError(f"a string must have {longest:,} bytes; at most {_MAX_LEAST_BYTES:,} may be demanded")
        if self.least_chars or self.most_chars is not None:
            found.append(Repeat(ANY, self.least_chars, self.most_chars))
        return found


def _least(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def _distinct(nodes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The distinct schemas, without those that allow everything."""
    found = [node for node in {json.dumps(each): each for each in nodes}.values() if node is not True and node != {}]
    return (False,) if False in found else tuple(found) or (True,)
