"""Static files, which browsers cache: a file's address changes with its content. They are sent compressed. Pages are
not, because compressing a page's token together with a stranger's text would leak the token.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib.resources import files
from pathlib import Path

from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

FOLDER = Path(str(files("thothy_ai.http.console").joinpath("static")))
KEPT = "public, max-age=31536000, immutable"


class _Kept(StaticFiles):
    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers["cache-control"] = KEPT if scope["query_string"] else "no-cache"
        answer.headers["x-content-type-options"] = "nosniff"
        return answer


def assets() -> ASGIApp:
    """The application that serves the console's files."""
    return GZipMiddleware(_Kept(directory=FOLDER))


@cache
def asset(name: str) -> str:
    """The address of a file, relative to the console."""
    return f"static/{name}?{hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()[:12]}"
