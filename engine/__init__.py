"""The inference engine: paged KV, continuous batching, one resident process a device. It knows no jobs."""
