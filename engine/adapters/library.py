"""The loaded adapters by name, and how many requests use each.

A name means the weights that it was given last. A sequence keeps using the weights with which it was accepted; they
stay in host memory until the last such sequence has ended.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import NamedTuple

from thothy_ai.engine.api import AdapterInfo
from thothy_ai.engine.api.adapters import Adapter
from thothy_ai.engine.api.errors import UnknownAdapterError
from thothy_ai.engine.models.layers.adapted import HostWeights


class HostAdapter(NamedTuple):
    """An adapter's weights in host memory, and its reported properties."""

    info: AdapterInfo
    weights: HostWeights


@dataclass(eq=False, slots=True)
class _Held:
    """`users` counts open requests, and one more if the adapter has a name."""

    adapter: Adapter
    weights: HostWeights
    users: int = 1


class AdapterLibrary:
    """Owns the adapters in host memory. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._named: dict[str, tuple[AdapterInfo, int]] = {}
        self._held: dict[int, _Held] = {}
        self._numbers: dict[str, int] = {}  # by digest, of the held adapters
        self._last = 0
        self.changes = 0

    @property
    def infos(self) -> tuple[AdapterInfo, ...]:
        """The adapters that have a name, sorted by it."""
        with self._lock:
            return tuple(info for _, (info, _) in sorted(self._named.items()))

    def put(self, loaded: HostAdapter) -> list[int]:
        """Give weights a name. Returns the numbers of adapters that have become unused, for `drop`."""
        info, weights = loaded
        with self._lock:
            before = self._named.get(info.name)
            if before is not None and before[0].digest == info.digest:
                self._named[info.name] = info, before[1]  # the folder may differ
                return []
            number = self._numbers.get(info.digest)
            if number is None:
                number = self._last = self._last + 1
                self._numbers[info.digest] = number
                self._held[number] = _Held(Adapter(number, info.digest, info.invocation_tokens), weights)
            else:
                self._held[number].users += 1
            self._named[info.name] = info, number
            self.changes += 1
            return [] if before is None else self._leave(before[1])

    def remove(self, name: str) -> list[int]:
        """Remove a name; UnknownAdapterError if there is no such name. Returns the same as `put`."""
        with self._lock:
            if name not in self._named:
                raise UnknownAdapterError(f"no adapter {name!r} is loaded", "adapter")
            self.changes += 1
            return self._leave(self._named.pop(name)[1])

    def use(self, name: str) -> Adapter:
        """Take the adapter of a request, which must release it at its end; UnknownAdapterError for an unknown name."""
        with self._lock:
            if name not in self._named:
                raise UnknownAdapterError(f"no adapter {name!r} is loaded", "adapter")
            held = self._held[self._named[name][1]]
            held.users += 1
            return held.adapter

    def release(self, adapter: Adapter) -> list[int]:
        """A request with this adapter has ended. Returns the same as `put`."""
        with self._lock:
            return self._leave(adapter.number)

    def drop(self, number: int) -> bool:
        """Free an adapter's memory, unless it is in use again or already freed; returns whether it was freed."""
        with self._lock:
            held = self._held.get(number)
            if held is None or held.users:
                return False
            del self._numbers[held.adapter.digest], self._held[number]
            return True

    def weights(self, number: int) -> HostWeights:
        with self._lock:
            return self._held[number].weights

    def _leave(self, number: int) -> list[int]:
        held = self._held[number]
        held.users -= 1
        return [] if held.users else [number]
