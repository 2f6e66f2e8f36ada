"""The benchmarks of `thothy bench`: a queue of jobs through the engine and its peers.

A workload file defines jobs by their lengths alone, and needs none of the service's libraries. Real jobs come as
requests from the caller: this package knows no kinds, and imports only the engine.
"""
