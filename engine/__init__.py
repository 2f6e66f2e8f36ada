"""The inference engine: paged KV, continuous batching, one resident process per device. It knows nothing of jobs."""
