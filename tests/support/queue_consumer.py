"""`Consumer`: consumes messages in an event loop as a worker does, and keeps them; and what publishes them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

from kombu.asynchronous import Hub

from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue
from thothy_ai.queue.app import QueueApp, make_app, ordinary_queue
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.hints import Hint, task_id

ENGINE, OTHER_ENGINE = "first", "second"


class Consumer:
    """Consumes the lists of two engines."""

    def __init__(self, queue: Queue, stack: ExitStack, places: int) -> None:
        app: Any = make_app(queue.settings, QueueApp)
        stack.callback(app.close)
        self.connection: Any = stack.enter_context(app.connection_for_read())
        self.channel = self.connection.channel()
        self.channel.basic_qos(0, places, False)
        self.messages: list[Any] = []
        queues = [ordinary_queue(ENGINE), ordinary_queue(OTHER_ENGINE)]
        self.consumer: Any = app.amqp.TaskConsumer(self.channel, queues=queues)
        self.consumer.on_message = self.messages.append
        self.consumer.consume()
        hub = Hub()
        stack.callback(hub.close)
        self.connection.register_with_event_loop(hub)
        self._turns = hub.create_loop()

    @property
    def ids(self) -> list[str]:
        return [message.headers["id"] for message in self.messages]

    def turn(self) -> None:
        """It takes up to a second."""
        next(self._turns)

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(PATIENCE):
            if condition():
                return
            self.turn()
        raise AssertionError("it never holds")


def publish(queue: Queue, count: int, engine: str = ENGINE) -> list[str]:
    """Publish messages; returns their ids, the oldest first."""
    hints = [Hint(uuid4(), 1) for _ in range(count)]
    broker = Broker(queue.settings)
    broker.publish(hints, engine=engine)
    broker.close()
    return list(map(task_id, hints))
