"""Celery's side of the worker: the application, the pool that hands jobs to the `JobRunner`, the consumer."""
