"""Sends requests to an engine outside the queue, for `thothy ask` and `thothy eval`. Nothing is recorded."""
