"""The tests, mirroring the source tree; what several of them share is in `tests.support`."""
