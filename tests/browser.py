"""A headless Chromium driven over its debugging pipe: open, hover, press, look, collect errors."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")


class Browser:
    """One page; `errors` holds what went wrong on it, `requests` what it asked the network for."""

    def __init__(self, profile: Path):
        self._next, self.errors, self.requests = 0, [], []
        theirs, self._out = os.pipe()
        answers, theirs_too = os.pipe()
        self._in = os.fdopen(answers, "rb")
        # Chromium listens on descriptor 3 and answers on 4.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs, theirs_too)]
        connect = f'exec "$@" 3<&{high[0]} 4>&{high[1]}'
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                connect,
                "bash",
                CHROMIUM,
                *flags,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=high,
            stderr=subprocess.DEVNULL,
        )
        for fd in (theirs, theirs_too, *high):
            os.close(fd)
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        self._in.close()

    def call(self, method, **params):
        return self._call(method, sessionId=self._session, **params)

    def _call(self, method, sessionId=None, **params):
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if sessionId:
            message["sessionId"] = sessionId
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._next:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _read(self):
        text = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "chromium has gone"
            text += byte
        event = json.loads(text)
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"])
        elif method in ("Runtime.consoleAPICalled", "Page.javascriptDialogOpening"):
            self.errors.append(params)  # the page has nothing to say there
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return event

    def open(self, path: Path, width=1100, height=900, dark=False):
        self.errors, self.requests = [], []
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.absolute().as_uri())
        while self.run("document.readyState + location.protocol") != "completefile:":
            pass

    def run(self, script):
        """The value of an expression on the page."""
        options = {"returnByValue": True, "awaitPromise": True}
        return self.call("Runtime.evaluate", expression=script, **options)["result"].get("value")

    def hover(self, selector):
        """Moves the mouse over the middle of the first such element."""
        box = self.run(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f"return [b.x + b.width / 2, b.y + b.height / 2]; }})"
            f"(document.querySelector({selector!r}))"
        )
        self.settle()
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
        self.settle()

    def settle(self):
        """Waits until what was asked for is drawn and its events are handled."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, key):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def names(self, role):
        """The names that a screen reader has for everything of a role."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            node.get("name", {}).get("value", "")
            for node in nodes
            if not node.get("ignored") and node.get("role", {}).get("value") == role
        ]

    def screenshot(self, path: Path):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))
