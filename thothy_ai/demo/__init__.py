"""The workload of `thothy demo`: bundled source texts and a mixed queue of jobs about them. Also makes any number of
synthetic jobs for benchmarks."""
