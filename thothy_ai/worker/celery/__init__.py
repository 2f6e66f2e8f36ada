"""Celery's side of the worker: the application, the pool that hands jobs to the `WorkerLoop`, the consumer."""
