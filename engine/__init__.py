"""The inference engine: paged KV, continuous batching, one resident process per device. Jobs are unknown here."""
