"""A headless Chromium, driven over its DevTools pipe: no port, no package."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 60  # seconds for one answer
TROUBLE = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}
OFFLINE = ("--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", *OFFLINE)


@contextlib.contextmanager
def browser(profile: Path) -> Iterator["Browser"]:
    """Run one Chromium, with an empty profile in the folder `profile`, until the end of the block."""
    commands, answers = os.pipe(), os.pipe()
    theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (commands[0], answers[1])]  # apart from 3 and 4
    start = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}'  # where --remote-debugging-pipe listens and answers
    arguments = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
    process = subprocess.Popen(["bash", "-c", start, "bash", *arguments], pass_fds=theirs, stderr=subprocess.DEVNULL)
    for fd in (*theirs, commands[0], answers[1]):
        os.close(fd)
    try:
        yield Browser(commands[1], answers[0])
    finally:
        process.kill()
        process.wait()
        os.close(commands[1])
        os.close(answers[0])


class Browser:
    """Commands and events of the DevTools protocol, each a JSON text that ends with a zero byte."""

    def __init__(self, write: int, read: int) -> None:
        self.write, self.read = write, read
        self.rest, self.count = b"", 0
        self.events: list[Json] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> Json:
        """Return the result of one command; collect events meanwhile. Raises AssertionError for an error."""
        self.count += 1
        command = {"id": self.count, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self.write, json.dumps(command).encode() + b"\0")
        while (message := self.next()).get("id") != self.count:
            self.events.append(message)
        assert "error" not in message, (method, message["error"])
        result: Json = message["result"]
        return result

    def next(self) -> Json:
        """Read the next message. Raises TimeoutError."""
        until = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            if not select.select([self.read], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium said nothing for {PATIENCE} s")
            received = os.read(self.read, 1 << 16)
            assert received, "Chromium has ended"
            self.rest += received
        message, _, self.rest = self.rest.partition(b"\0")
        found: Json = json.loads(message)
        return found

    def open(self, file: Path, width: int, scheme: str = "light") -> "Tab":
        """Load `file` in a new tab, `width` pixels wide, with a preferred color scheme."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Runtime", "Log", "Page", "Network"):
            tab.call(f"{domain}.enable")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1}
        tab.call("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tab.call("Page.navigate", url=file.as_uri())
        while not tab.messages("Page.loadEventFired"):
            self.events.append(self.next())
        return tab


class Tab:
    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    def call(self, method: str, **params: Any) -> Json:
        return self.browser.call(method, self.session, **params)

    def messages(self, *methods: str) -> list[Json]:
        events = self.browser.events
        return [one for one in events if one.get("sessionId") == self.session and one["method"] in methods]

    def evaluate(self, expression: str) -> Any:
        """Evaluate a JavaScript expression. Raises AssertionError where it throws."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def trouble(self) -> list[Json]:
        return [event["params"] for event in self.messages(*TROUBLE)]

    def requests(self) -> list[str]:
        return [event["params"]["request"]["url"] for event in self.messages("Network.requestWillBeSent")]

    def press_enter(self) -> None:
        enter = {"key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **enter)
