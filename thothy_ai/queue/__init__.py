"""The queue: hints, the Celery application, broker, leader, dispatcher and reaper; its status and metrics."""
