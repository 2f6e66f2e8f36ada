"""The HTTP door: OpenAI's API over the queue's engines.

    errors ── access ── asgi ── engines ── openai (fields, chat, completions, models; texts) ── app ── server

Generation routes are plain ASGI: a request is parsed once, and an event is bytes around a JSON string.
"""
