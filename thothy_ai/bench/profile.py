"""Profiles where a drain's time goes on the device, from the profiler's raw events, classified by kernel name.

Kineto's events are read directly, because building torch's tables for some hundred thousand kernels takes minutes. Only
the device's activities and the calls that launch them are recorded, so that the drain is hardly slowed down.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity

from thothy_ai.engine.api.errors import InvalidRequestError

_ATTENTION = re.compile(r"attention|flash|fmha|^_?(decode|merge|plan|prefill|unpack)_kernel", re.IGNORECASE)
_GEMM = re.compile(r"gemm|gemv|cublas|cutlass|nvjet|xmma|split_?k|^_(gate_up|down)_kernel", re.IGNORECASE)
_WAITS = re.compile(r"^(cuda|cu)(Event|Stream|Device|Ctx)Synchronize")
_MAX_KERNELS = 12
_MAX_NAME = 60
_NANO = 1e-9

Result = TypeVar("Result")


class Activity(NamedTuple):
    """A kernel, a copy or a runtime call: from `start` to `end` in nanoseconds."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """All launches of one kernel."""

    name: str
    kind: str
    launches: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds of the device from its first kernel to its last, in four parts that add up to the total.

    Time in which kernels overlap counts as GEMM first, then as attention, then as the rest. `waited` is how long the
    host blocked on the device within that time.
    """

    gemm: float
    attention: float
    rest: float
    idle: float
    waited: float
    kernels: tuple[Kernel, ...]  # only the most expensive

    @property
    def seconds(self) -> float:
        """The time from the first kernel to the last."""
        return self.gemm + self.attention + self.rest + self.idle


def require_gpu() -> None:
    """Raise `InvalidRequestError` without a GPU: only GPU time is profiled."""
    if not torch.cuda.is_available():
        raise InvalidRequestError("--profile measures GPU time, and no GPU is available")


def profiled(work: Callable[[], Result]) -> tuple[Profile, Result]:
    """The profile of `work` on the GPU, and its result."""
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        result = work()
    results = profiler.profiler.kineto_results if profiler.profiler else None
    if results is None:
        raise RuntimeError("the profiler recorded nothing")
    device: list[Activity] = []
    host: list[Activity] = []
    for event in results.events():
        activity = Activity(event.name(), event.start_ns(), event.start_ns() + event.duration_ns())
        (device if event.device_type() == DeviceType.CUDA else host).append(activity)
    return split(device, host), result


def kind_of(name: str) -> str:
    """The class of a kernel, by its name: "attention", "GEMM" or "rest"."""
    if _ATTENTION.search(name):
        return "attention"
    return "GEMM" if _GEMM.search(name) else "rest"


def split(device: Sequence[Activity], host: Iterable[Activity]) -> Profile:
    """Divide the time between the first and the last activity of the device."""
    if not device:
        raise RuntimeError("the profiler recorded no kernels")
    begin, end = min(activity.start for activity in device), max(activity.end for activity in device)
    kinds = {name: kind_of(name) for name in {activity.name for activity in device}}
    gemm = [activity for activity in device if kinds[activity.name] == "GEMM"]
    attention = [activity for activity in device if kinds[activity.name] == "attention"]
    gemm_time, both, busy = covered(gemm), covered([*gemm, *attention]), covered(device)
    waits = [activity for activity in host if _WAITS.match(activity.name)]
    nanoseconds: Counter[str] = Counter()
    for name, start, ended in device:
        nanoseconds[name] += ended - start
    launches = Counter(activity.name for activity in device)
    return Profile(
        gemm=gemm_time * _NANO,
        attention=(both - gemm_time) * _NANO,
        rest=(busy - both) * _NANO,
        idle=(end - begin - busy) * _NANO,
        waited=sum(max(0, min(wait.end, end) - max(wait.start, begin)) for wait in waits) * _NANO,
        kernels=tuple(
            Kernel(name[:_MAX_NAME], kinds[name], launches[name], spent * _NANO)
            for name, spent in nanoseconds.most_common(_MAX_KERNELS)
        ),
    )


def covered(activities: Iterable[Activity]) -> int:
    """Nanoseconds during which at least one of the activities runs."""
    total, reached = 0, 0
    for _, start, end in sorted(activities, key=lambda activity: activity.start):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
