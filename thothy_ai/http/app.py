"""The door as an ASGI application: generation routes first, as plain ASGI, and Starlette's router for the others."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from thothy_ai.http import metrics
from thothy_ai.http.access import Access, caller_of
from thothy_ai.http.asgi import Exchange, new_id
from thothy_ai.http.engines import Fleet
from thothy_ai.http.errors import ApiError
from thothy_ai.http.openai import models, texts
from thothy_ai.http.openai.chat import ChatCompletion
from thothy_ai.http.openai.completions import TextCompletion

log = logging.getLogger(__name__)

GENERATIONS: dict[str, Callable[[object, str], texts.Wanted]] = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": TextCompletion,
}


def make_app(fleet: Fleet, access: Access) -> ASGIApp:
    """The application. It starts and closes the fleet, and asks `access` who sends each request."""
    others = _others(fleet)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await others(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send)
        try:
            scope["caller"] = await access.caller(scope)
        except ApiError as error:
            await exchange.refuse(error)
            return
        wanted = GENERATIONS.get(scope["path"])
        if wanted is None or scope["method"] != "POST":
            await others(scope, receive, _named(send))
            return
        with metrics.IN_FLIGHT.track_inprogress():
            try:
                tenant = caller_of(scope, "chat").tenant
                await texts.write(exchange, fleet, wanted(await exchange.json(), tenant))
            except ApiError as error:
                await exchange.refuse(error)
            except Exception:
                log.exception("request %s failed", exchange.id)
                if exchange.status is None:
                    await exchange.refuse(ApiError(500, "the server failed; its log says why", code="server_error"))
        metrics.REQUESTS.labels(scope["path"], exchange.status).inc()

    return app


def _named(send: Send) -> Send:
    """Have each answer carry an id."""

    async def with_id(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"x-request-id", new_id().encode())]
        await send(message)

    return with_id


def _others(fleet: Fleet) -> Starlette:
    async def list_models(request: Request) -> Response:  # noqa: ARG001 - Starlette passes it
        return JSONResponse(models.listed(fleet))

    async def find_model(request: Request) -> Response:
        return JSONResponse(models.found(fleet, request.path_params["name"]))

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            method, path = request.method, request.url.path
            if error.status_code == 405 or path in GENERATIONS:
                refusal = ApiError(405, f"{path} does not take {method}", code="method_not_allowed")
            else:
                refusal = ApiError(404, f"unknown request: {method} {path}", code="unknown_url")
        elif isinstance(error, ApiError):
            refusal = error
        else:
            refusal = ApiError(500, "the server failed; its log says why", code="server_error")
        return JSONResponse(refusal.body, refusal.status)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001 - Starlette passes it
        await fleet.start()
        yield
        await fleet.close()

    return Starlette(
        routes=[Route("/v1/models", list_models), Route("/v1/models/{name:path}", find_model)],
        exception_handlers={HTTPException: refused, ApiError: refused, Exception: refused},
        lifespan=lifespan,
    )
