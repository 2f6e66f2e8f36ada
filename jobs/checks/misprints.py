"""Figures of a source with another decimal mark or with two digits transposed: no calculation excuses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from thothy_ai.jobs.checks.derived import kind_of
from thothy_ai.jobs.checks.quantities import Quantity
from thothy_ai.jobs.checks.units import Unit

_MISPLACED = 3  # places by which a decimal mark is misplaced
_MAX_ALIKE = 12  # figures with the same digits that are compared; keeps the time linear


class Misprints:
    """What a number may be a misprint of."""

    def __init__(self, figures: Iterable[Quantity]) -> None:
        """`figures` are those of the source, without years."""
        self._by_digits: dict[str, list[tuple[Decimal, Unit | None]]] = {}
        for each in figures:
            for value in each.readings if len(each.readings) == 1 else ():
                entries = self._by_digits.setdefault("".join(sorted(digits_of(value))), [])
                if len(entries) < _MAX_ALIKE:
                    entries.append((value, kind_of(each)))

    def has(self, quantity: Quantity) -> bool:
        """Whether a number is one of the source's with another magnitude or with two digits transposed."""
        return any(True for _ in self._of(quantity))

    def has_of_its_unit(self, quantity: Quantity) -> bool:
        """Whether a number is a misprint of a figure that counts the same thing, which a calculation hardly
        explains.
        """
        unit = kind_of(quantity)
        return unit is not None and any(its_unit == unit for its_unit in self._of(quantity))

    def _of(self, quantity: Quantity) -> Iterator[Unit | None]:
        if quantity.spelled or quantity.year or len(quantity.readings) > 1:
            return
        (value,) = quantity.readings
        digits = digits_of(value)
        unit = kind_of(quantity)
        for other, its_unit in self._by_digits.get("".join(sorted(digits)), ()):
            apart = abs(other.adjusted() - value.adjusted())
            if other == value or apart > _MISPLACED or (unit and its_unit and unit != its_unit):
                continue
            their_digits = digits_of(other)
            moved = their_digits == digits and (len(digits) > 1 or (unit and unit == its_unit))
            differing = [at for at, pair in enumerate(zip(digits, their_digits, strict=False)) if pair[0] != pair[1]]
            transposed = len(differing) == 2 and differing[1] - differing[0] == 1
            if moved or (transposed and not apart and len(their_digits) == len(digits)):
                yield its_unit


def digits_of(value: Decimal) -> str:
    """The digits of a number from its first to its last that is not zero."""
    return "".join(map(str, value.normalize().as_tuple().digits))
