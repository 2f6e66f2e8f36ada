"""The figures of a drain, by name, as printed and stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from thothy_ai.bench.check import Checked
from thothy_ai.bench.drain import Drained
from thothy_ai.bench.profile import Profile

Figure = tuple[str, str]


@dataclass(frozen=True, slots=True)
class StartUp:
    """Seconds from the start of the process until the engine was ready, and until its first job was done."""

    ready: float
    first_job: float


@dataclass(frozen=True, slots=True)
class PeerResult:
    """A peer's time for the same jobs."""

    name: str
    seconds: float


def drain_figures(drained: Drained, counted_jobs: str, unit: str) -> list[Figure]:
    """The figures of a drain and of the engine during it. `unit`: the name of an hour of the device."""
    counted = drained.gained
    preemptions = drained.after.scheduler.preemptions - drained.before.scheduler.preemptions
    jobs, seconds = len(drained.finished), drained.seconds
    prompt, output, steps = counted("prompt_tokens"), counted("output_tokens"), counted("steps")
    members = fmean(drained.running) if drained.running else 0.0
    return [
        ("jobs", counted_jobs),
        ("seconds", f"{seconds:.2f}"),
        (f"jobs per {unit}", f"{jobs / seconds * 3600:,.0f}"),
        ("tokens/s, prompt and output", f"{(prompt + output) / seconds:,.0f}"),
        ("prompt tokens", f"{prompt:,.0f}"),
        ("output tokens", f"{output:,.0f}"),
        ("prefix cache hit rate", f"{counted('cached_tokens') / prompt:.1%}"),
        ("KV pool in use, peak and mean", f"{max(drained.kv_used):.1%}, {fmean(drained.kv_used):.1%}"),
        ("preemptions", f"{preemptions:,}"),
        ("steps", f"{steps:,.0f}"),
        ("sequences running, mean", f"{members:,.0f}"),
        ("time in steps, launch gaps included", f"{counted('busy_seconds') / seconds:.1%}"),
        ("of that in prefill", f"{counted('prefill_seconds') / counted('busy_seconds'):.1%}"),
    ]


def start_up_figures(start_up: StartUp) -> list[Figure]:
    """The figures of the engine's start."""
    return [
        ("start-up, process to ready", f"{start_up.ready:.1f} s"),
        ("start-up, process to first job done", f"{start_up.first_job:.1f} s"),
    ]


def check_figures(checked: Checked) -> list[Figure]:
    """The figures that compare the tokens with the references."""
    if checked.noise is not None:
        gap = f"another rounding moves them by {checked.noise:.2f} nats, and they lie {checked.mean:.2f} below the best"
        return [("tokens checked against the references", f"not to be judged: {gap}")]
    return [
        ("tokens checked against the references", f"{checked.tokens:,} of {checked.jobs} jobs"),
        ("their log-probability below the best", f"worst {checked.worst:.3f}, mean {checked.mean:.4f} nats"),
        ("allowed", f"{checked.tolerance:g} nats"),
        ("the references' own choice", f"{checked.agreeing:.1%}"),
    ]


def profile_figures(profile: Profile, drained: Drained) -> list[Figure]:
    """The shares of the profiled drain's time."""
    whole, steps = profile.seconds, drained.gained("steps")
    parts = {"GEMM": profile.gemm, "attention": profile.attention, "rest": profile.rest, "idle": profile.idle}
    return [
        ("profiled drain, seconds", f"{drained.seconds:.2f}"),
        *((f"of that {name}", f"{seconds:.2f} s, {seconds / whole:.1%}") for name, seconds in parts.items()),
        ("GPU busy", f"{1 - profile.idle / whole:.1%}"),
        ("host's own time per step", f"{(whole - profile.waited) / steps * 1e3:.2f} ms"),
    ]


def peer_figures(peers: Sequence[PeerResult], drained: Drained) -> list[Figure]:
    """Each peer's time, and its ratio to ours."""
    return [
        (f"{peer.name}, its seconds", f"{peer.seconds:.2f}, {peer.seconds / drained.seconds:.2f} x ours")
        for peer in peers
    ]
