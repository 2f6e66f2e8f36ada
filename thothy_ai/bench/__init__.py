"""The drain benchmark: a queue of jobs, known by their lengths alone, run through the engine and through its peers.

It knows tokens and no jobs of the service, and stands without the service's libraries.
"""
