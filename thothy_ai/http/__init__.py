"""The HTTP door: OpenAI's API over the queue's engines.

    errors ── access ── asgi ── engines ── openai (fields, tools, one module a route; texts) ── app ── server

Generation routes are plain ASGI: a request is parsed once, and an event is bytes around a JSON string.
"""
