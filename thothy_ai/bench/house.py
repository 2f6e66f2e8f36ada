"""A longer house prompt: what all jobs of a workload begin with."""

from __future__ import annotations

from dataclasses import replace

from thothy_ai.bench.workload import Part, Workload


def with_house_prompt(workload: Workload, tokens: int) -> Workload:
    """The workload with so many common tokens before every prompt."""
    if not tokens:
        return workload
    house = Part("house prompt", tokens)
    jobs = (replace(job, parts=(house, *job.parts), shared_parts=1 + job.shared_parts) for job in workload.jobs)
    return replace(workload, jobs=tuple(jobs))
