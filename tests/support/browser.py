"""A headless Chromium on a pipe, by its DevTools protocol: loads a page at a width, evaluates, takes pictures.

A pipe needs neither a port nor a WebSocket: a message is JSON that ends in a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE

ARGUMENTS = ("--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage",
             "--accept-lang=en-US", "--no-first-run", "--disable-background-networking",
             "--remote-debugging-pipe")  # fmt: skip
# DevTools reads from descriptor 3 and writes to 4.
LAUNCH = "import os, sys; fd = int(sys.argv[1]); os.dup2(fd, 3); os.dup2(fd, 4); os.execv(sys.argv[2], sys.argv[2:])"
# Where the middle of what is to be clicked is, once it is in sight; what covers it otherwise.
FIND = """(within, text) => {
  const parts = [...document.querySelectorAll(within)];
  const all = text ? parts.flatMap(e => [...e.querySelectorAll('button, a, summary, label')]) : parts;
  const found = all.find(e => e.textContent.trim().startsWith(text) && e.getClientRects().length);
  if (!found) return 'there is none';
  found.scrollIntoView({block: 'center'});
  const box = found.getClientRects()[0], x = box.x + box.width / 2, y = box.y + box.height / 2;
  const top = document.elementFromPoint(x, y);
  return found.contains(top) || top?.contains(found) ? [x, y] : `covered by ${top?.outerHTML.slice(0, 80)}`;
}"""


class Browser:
    """One page of a running Chromium."""

    def __init__(self, pipe: socket.socket) -> None:
        pipe.settimeout(PATIENCE)
        self._pipe, self._buffer, self._number = pipe, b"", 0
        self._session: str | None = None
        self._loaded = False
        self.requests: dict[str, str] = {}  # the URLs that the page has asked for, by the request's id
        self.received = 0  # bytes, as they were sent, of the page and what it has loaded
        self.posted: set[str] = set()  # the URLs that forms were sent to, on all pages
        self.refused: list[str] = []  # of those, the URLs that its policy refused
        self.errors: list[str] = []  # what its scripts, its policy and its dialogs said
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setScrollbarsHidden", hidden=True)

    def load(self, page: Path | str, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Show a file or an address in a window of that size, in pixels, and wait until it is loaded."""
        self.received = 0
        self.requests.clear()
        self.refused.clear()
        self.errors.clear()
        self.resize(width, height, dark=dark)
        self._loaded = False
        self._ask("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self._wait()

    def forget(self) -> None:
        """Load everything anew, as on a first visit."""
        self._ask("Network.clearBrowserCache")

    def resize(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Show the same page in another window."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        wanted = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self._ask("Emulation.setEmulatedMedia", features=features)

    def press(self, selector: str) -> None:
        """Click an element that leads to another page, and wait until that is loaded."""
        self._loaded = False
        assert self.evaluate(
            f"(e => e ? (setTimeout(() => e.click()), true) : false)(document.querySelector({selector!r}))"
        )
        self._wait()

    def click(self, text: str, within: str = "body", *, leads: bool = True) -> None:
        """Click with the mouse on the first visible button or link that begins with this text, or on the first part if
        there is none, and wait for the page that it leads to.
        """
        place = self.evaluate(f"({FIND})({within!r}, {text!r})")
        assert isinstance(place, list), f"{text!r} in {within!r}: {place}"
        self._loaded = False
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
        if leads:
            self._wait()

    def write(self, selector: str, text: str) -> None:
        """Type into a field, in place of what it has."""
        self.evaluate(f"(e => {{ e.focus(); e.select(); }})(document.querySelector({selector!r}))")
        self._ask("Input.insertText", text=text)

    def key(self, name: str, *, leads: bool = False, held: bool = False) -> None:
        """Press a key, or let one go that was pressed on an earlier page and has been `held` since."""
        self._loaded = False
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key=name, text=text, autoRepeat=held and kind == "keyDown")
        if leads:
            self._wait()

    def until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def _wait(self) -> None:
        while not self._loaded:
            self._next()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, or of its promise. The page's policy does not concern it."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, to: Path, *, whole: bool = True, quality: int = 50) -> None:
        """A picture of the whole page, or of the window: a PNG or WebP, as its name ends."""
        kind = {"format": "webp", "quality": quality} if to.suffix == ".webp" else {"format": "png"}
        taken = self._ask("Page.captureScreenshot", **kind, captureBeyondViewport=whole)
        to.write_bytes(base64.b64decode(taken["data"]))

    def pdf(self, to: Path) -> None:
        """The page as it prints."""
        to.write_bytes(base64.b64decode(self._ask("Page.printToPDF", printBackground=False)["data"]))

    def close(self) -> None:
        """End the browser, which may end before it answers."""
        self._session = None
        self._send("Browser.close")
        while self._pipe.recv(1 << 16):
            pass

    def _ask(self, method: str, **params: object) -> dict[str, Any]:
        number = self._send(method, **params)
        while (answer := self._next()).get("id") != number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _send(self, method: str, **params: object) -> int:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._pipe.sendall(json.dumps(message).encode() + b"\0")
        return self._number

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = self._pipe.recv(1 << 16)
            assert more, "Chromium has ended"
            self._buffer += more
        one, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(one)
        if message.get("method") == "Network.requestWillBeSent":
            asked = message["params"]["request"]
            self.requests[message["params"]["requestId"]] = asked["url"]
            self.posted |= {asked["url"]} if asked["method"] == "POST" else set()
        if message.get("method") == "Network.loadingFailed" and message["params"].get("blockedReason") == "csp":
            self.refused.append(self.requests[message["params"]["requestId"]])
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        """Keep what an event says."""
        self._loaded |= method == "Page.loadEventFired"
        self.received += params["encodedDataLength"] if method == "Network.loadingFinished" else 0
        if method == "Runtime.exceptionThrown":
            thrown = params["exceptionDetails"]
            self.errors.append(thrown.get("exception", {}).get("description", thrown["text"]))
        if method == "Runtime.consoleAPICalled" and params["type"] in {"error", "assert"}:
            self.errors.append(" ".join(str(each.get("value", each.get("description"))) for each in params["args"]))
        entry = params["entry"] if method == "Log.entryAdded" else {"level": None}
        if entry["level"] == "error" and entry["source"] != "network":  # what a page could not load is no error of its
            self.errors.append(entry["text"])
        if method == "Page.javascriptDialogOpening":
            if params["type"] != "beforeunload":  # which asks whether to leave a page
                self.errors.append(f"dialog: {params['message']}")
            self._send("Page.handleJavaScriptDialog", accept=True)


@contextmanager
def browser(start: str, home: Path, *more: str) -> Iterator[Browser]:
    """Run the Chromium that `start` starts, with its files in `home` and more arguments, until the block ends."""
    ours, its = socket.socketpair()
    arguments = [start, *ARGUMENTS, *more, f"--user-data-dir={home / 'profile'}"]
    with ours, (home / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(its.fileno()), *arguments],
            pass_fds=(its.fileno(),),
            env={**os.environ, "HOME": str(home)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        its.close()
        try:
            one = Browser(ours)
            yield one
            one.close()
            process.wait(PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
