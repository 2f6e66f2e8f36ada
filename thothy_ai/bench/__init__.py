"""The drain benchmark: a queue of jobs, defined by their lengths alone, run through the engine and through its peers.

It handles tokens rather than the service's jobs, and does not need the service's libraries.
"""
