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
from starlette.types import ASGIApp, Receive, Scope, Send

from thothy_ai.errors import DatabaseError, DatabaseUnreachableError
from thothy_ai.http import metrics
from thothy_ai.http.access import Access, caller_of
from thothy_ai.http.accounts import Accounts
from thothy_ai.http.asgi import Exchange, parsed
from thothy_ai.http.console.console import Console
from thothy_ai.http.console.site import ROOT
from thothy_ai.http.engines import Fleet
from thothy_ai.http.errors import RETRY_SECONDS, ApiError
from thothy_ai.http.openai import models, texts
from thothy_ai.http.openai.chat import ChatCompletion
from thothy_ai.http.openai.completions import TextCompletion
from thothy_ai.http.openai.responses import ModelResponse
from thothy_ai.http.queue_routes import QueueRoutes

log = logging.getLogger(__name__)

DENIALS = {401, 403, 429}
CLIENT_LEFT = 499  # the client left before the answer began; nginx's code, for metrics

GENERATIONS: dict[str, Callable[[object, str], texts.Wanted]] = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": TextCompletion,
    "/v1/responses": ModelResponse,
}


def make_app(
    fleet: Fleet,
    access: Access,
    accounts: Accounts,
    queue: QueueRoutes | None = None,
    console: Console | None = None,
) -> ASGIApp:
    """The application. It starts and closes its parts: `access` identifies callers, `accounts` bills them, `queue` has
    the routes over the queue, and `console` has pages and sessions of its own.
    """
    others = _others(fleet, access, accounts, queue, console)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await others(scope, receive, send)
            return
        if console is not None and (scope["path"] == ROOT or scope["path"].startswith(f"{ROOT}/")):
            await console(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send)
        try:
            caller = scope["caller"] = await access.caller(scope)
            async with access.while_valid(caller):
                if scope["path"] in GENERATIONS and scope["method"] == "POST":
                    await _generate(exchange, fleet, accounts)
                else:
                    await accounts.count(exchange, caller)
                    await others(scope, exchange.receive, exchange.pass_on)
        except ApiError as error:
            count_denial(scope, error)
            await exchange.refuse(error)
        except Exception:
            log.exception("request %s failed", exchange.id)
            await exchange.refuse(ApiError(500, "the server failed; its log says why", code="server_error"))
        if scope["path"] in GENERATIONS:
            metrics.REQUESTS.labels(scope["path"], exchange.status or CLIENT_LEFT).inc()

    return app


async def _generate(exchange: Exchange, fleet: Fleet, accounts: Accounts) -> None:
    caller, wanted = caller_of(exchange.scope, "chat"), GENERATIONS[exchange.scope["path"]]
    with metrics.IN_FLIGHT.track_inprogress():
        async with accounts.open(exchange, caller) as account, exchange.body() as body:
            await accounts.take(exchange, caller, account, len(body))
            made = await parsed(body, lambda value: wanted(value, caller.tenant))
            await texts.write(exchange, fleet, made, account)


def count_denial(scope: Scope, error: ApiError) -> None:
    """Count and log a request that was denied, for good or for now. The log names the id of a valid key."""
    if error.status not in DENIALS:
        return
    metrics.DENIED.labels(error.code).inc()
    caller, client = scope.get("caller"), scope.get("client")
    log.warning(
        "denied %s %r to %s at %s: %s",
        scope["method"],
        scope["path"],
        (caller and caller.key) or "a client without a key",
        client[0] if client else "an unknown address",
        error,
    )


def _others(
    fleet: Fleet, access: Access, accounts: Accounts, queue: QueueRoutes | None, console: Console | None
) -> Starlette:
    async def list_models(request: Request) -> Response:  # noqa: ARG001 - Starlette passes it
        return JSONResponse(models.listed(fleet))

    async def find_model(request: Request) -> Response:
        return JSONResponse(await models.found(fleet, request.path_params["name"]))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001 - Starlette passes it
        await access.start()
        await accounts.start()
        await fleet.start()
        yield
        await accounts.close()  # engines still report the usage of aborted requests
        await fleet.close()
        await access.close()
        if queue is not None:
            await queue.close()
        if console is not None:
            await console.close()

    application = Starlette(
        routes=[
            Route("/v1/models", list_models),
            Route("/v1/models/{name:path}", find_model),
            *(queue.routes if queue is not None else ()),
        ],
        exception_handlers={HTTPException: _refused, ApiError: _refused, DatabaseError: _refused, Exception: _refused},
        lifespan=lifespan,
    )
    application.router.redirect_slashes = False  # a redirection would lose a request's body
    return application


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        method, path = request.method, request.url.path
        if error.status_code == 405:
            refusal = ApiError(405, f"{path} does not take {method}", code="method_not_allowed")
        else:
            refusal = ApiError(404, f"unknown request: {method} {path}", code="unknown_url")
    elif isinstance(error, ApiError):
        refusal = error
        count_denial(request.scope, error)
    elif isinstance(error, DatabaseUnreachableError) or (isinstance(error, DatabaseError) and error.sqlstate is None):
        log.warning("the record cannot be read: %s", error)
        says = "the queue's database does not answer"
        refusal = ApiError(503, says, code="database_unavailable", retry_after=RETRY_SECONDS)
    else:
        if isinstance(error, DatabaseError):  # others are raised on, and logged
            log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        refusal = ApiError(500, "the server failed; its log says why", code="server_error")
    return JSONResponse(refusal.body, refusal.status, refusal.headers)
