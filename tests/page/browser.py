"""Headless Chromium by its debugging pipe: pages as a reader has them, keys as a reader presses."""

import json
import os
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LONGEST_SECONDS = 240.0


class Browser:
    """A Chromium with one page open."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(
            ignore_cleanup_errors=True
        )  # children of the browser may still write
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        arguments = [
            "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", f"--user-data-dir={self._place.name}",
            "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        # The browser reads commands from descriptor 3 and writes to 4.
        line = f"exec {shlex.join(arguments)} 3<&{to_browser} 4>&{from_browser}"
        self._process = subprocess.Popen(
            ["bash", "-c", line],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._received = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in pages if one["type"] == "page")
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = session
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """Ends the browser."""
        os.close(self._out)
        os.close(self._in)
        self._process.terminate()
        self._process.wait()
        self._place.cleanup()

    def open(self, page: Path) -> None:
        """Loads the page, until its load event."""
        self.events.clear()
        self.call("Page.navigate", url=f"file://{page}")
        while not any(one["method"] == "Page.loadEventFired" for one in self.events):
            self._receive()

    def show(self, *, width: int = 1280, scheme: str = "light", media: str = "screen") -> None:
        """As wide as that, in that scheme, on a screen or on paper."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def ask(self, script: str) -> Any:
        """What an expression comes to; of a promise what it was kept with."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """A key goes down and up."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                modifiers=8 if shift else 0, **more,
            )  # fmt: skip

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol and its answer; events are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        """The next message; an event is kept too."""
        until = time.monotonic() + _LONGEST_SECONDS
        while b"\0" not in self._received:
            left = until - time.monotonic()
            ready, _, _ = select.select([self._in], [], [], max(0, left))
            data = os.read(self._in, 1 << 20) if ready else b""
            assert data, "the browser ended, or says nothing"
            self._received += data
        text, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


def messages(events: Sequence[dict[str, Any]]) -> list[str]:
    """What a page said on the console, and what of it failed."""
    said = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
    return [json.dumps(one["params"]) for one in events if one["method"] in said]


def requests(events: Sequence[dict[str, Any]]) -> list[str]:
    """Addresses that were asked for."""
    asked = (one for one in events if one["method"] == "Network.requestWillBeSent")
    return [one["params"]["request"]["url"] for one in asked]
