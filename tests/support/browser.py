"""A headless Chromium on a pipe, by its DevTools protocol: loads a page at a width, evaluates, takes pictures.

A pipe needs neither a port nor a WebSocket: a message is JSON that ends in a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ARGUMENTS = ("--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe")  # fmt: skip


class Browser:
    """One page of a running Chromium."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._answers, self._buffer, self._number = to, answers, b"", 0
        self.requests: list[str] = []  # the URLs that the page has asked for
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self._ask(f"{domain}.enable")

    def load(self, page: Path, width: int, height: int = 900) -> None:
        """Show a file in a window of that size, in pixels, and wait until it is loaded."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._ask("Page.navigate", url=page.resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression. The page's policy does not concern it."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, to: Path) -> None:
        """A PNG of the whole page."""
        taken = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        to.write_bytes(base64.b64decode(taken["data"]))

    def pdf(self, to: Path) -> None:
        """The page as it prints."""
        to.write_bytes(base64.b64decode(self._ask("Page.printToPDF", printBackground=False)["data"]))

    def close(self) -> None:
        """End the browser."""
        self._session = None
        self._ask("Browser.close")

    def _ask(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._answers, 1 << 16)
            assert more, "Chromium has ended"
            self._buffer += more
        one, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(one)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        return message


@contextmanager
def browser(start: str, home: Path) -> Iterator[Browser]:
    """Run the Chromium that `start` starts, with its files in `home`, until the block ends."""
    reads, to = os.pipe()
    answers, writes = os.pipe()
    line = f'exec "$0" "$@" 3<&{reads} 4>&{writes}'  # DevTools reads from 3 and writes to 4
    process = subprocess.Popen(
        ["/bin/sh", "-c", line, start, *ARGUMENTS, f"--user-data-dir={home / 'profile'}"],
        pass_fds=(reads, writes),
        env={**os.environ, "HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(reads)
    os.close(writes)
    try:
        one = Browser(to, answers)
        yield one
        one.close()
    finally:
        process.kill()
        process.wait()
        os.close(to)
        os.close(answers)
