"""OpenAI's Batch API over the queue: a file of requests becomes jobs, and their artifacts become files.

    storage ── lines ── results ── keeper

The HTTP door takes files and makes batches. The keeper, in the reaper's process, does everything else, so that a batch
ends even when no door runs.
"""
