"""`UrgentConsumer`: consumes urgent jobs' messages in their own places, along with all others.

A worker with all places taken consumes no ordinary message until a job ends. Urgent messages come over a channel with
its own prefetch count of the same size, so they never wait for ordinary jobs.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from kombu.common import ignore_errors


class UrgentConsumer(bootsteps.StartStopStep):
    """A second consumer on the worker's connection. Closing the connection restores what it has not acknowledged."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        consumer.urgent_consumer = None
        super().__init__(consumer, **kwargs)

    def start(self, consumer: Any) -> None:
        """Consume on a new channel."""
        channel = consumer.connection.channel()
        channel.basic_qos(0, consumer.pool.num_processes, False)
        consumer.urgent_consumer = consumer.app.amqp.TaskConsumer(
            channel,
            on_decode_error=consumer.on_decode_error,  # without lists: `EngineLists` adds the engine's
        )
        consumer.urgent_consumer.on_message = consumer.create_task_handler()
        consumer.urgent_consumer.consume()

    def stop(self, consumer: Any) -> None:
        """Consume no more. The channel stays open, for acknowledgements."""
        if consumer.urgent_consumer is not None:
            ignore_errors(consumer, consumer.urgent_consumer.cancel)
