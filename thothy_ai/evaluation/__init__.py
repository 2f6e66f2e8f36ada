"""Requests to an engine outside the queue: one of `thothy ask`, the cases of `thothy eval`. Nothing is recorded."""
