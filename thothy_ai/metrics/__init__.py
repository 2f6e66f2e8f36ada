"""What the service tells Prometheus. Each process exports its own counters; the dispatcher also exports the queue."""
