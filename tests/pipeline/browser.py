"""Chromium without a window, for tests of pages and for pictures of them.

As a program it takes a picture: python -m tests.pipeline.browser runs/first/report.html report.png [--dark]
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",  # it is run by root in containers
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
PATIENCE = 60  # seconds; a page that takes longer is broken, not slow


class Page:
    """A page in the browser, and what happened since it was opened."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, file: str | Path, *, width: int = 1280, height: int = 1000, dark: bool = False) -> None:
        """Show a file and wait until bokeh has drawn."""
        self.driver.get("about:blank")  # away from the page before, so that the logs are this one's
        self.logs("browser")
        self.logs("performance")
        self.resize(width, height)
        self.prefer(dark=dark)
        self.driver.get(Path(file).resolve().as_uri())
        self.settle()

    def show(self, file: str | Path, *, width: int = 1280, height: int = 1000) -> None:
        """As `open`, but a page that is open already is taken as it is."""
        if self.driver.current_url.partition("#")[0] != Path(file).resolve().as_uri():
            self.open(file)
        self.resize(width, height)
        self.settle()

    def settle(self) -> None:
        """Wait until the page's scripts have filled the plots, and bokeh has nothing left to draw."""
        drawn = "document.documentElement.classList.contains('drawn')"
        self.wait(f"return {drawn} && Bokeh.documents.length === 1 && Bokeh.documents[0].is_idle")

    def prefer(self, *, dark: bool) -> None:
        """What the system is set to."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, *arguments: Any) -> Any:
        """What a script returns, once it is something."""
        return WebDriverWait(self.driver, PATIENCE, poll_frequency=0.05).until(lambda _: self.run(script, *arguments))

    def comes_to(self, script: str, expected: Any) -> bool:
        """Does a script return this, now or soon? What a key or a setting changes may take the page a moment."""
        text = json.dumps(expected, separators=(",", ":"), ensure_ascii=False)
        with suppress(TimeoutException):
            self.wait(f"return JSON.stringify((() => {{{script}}})()) === arguments[0]", text)
        found = self.run(script)
        assert found == expected, found
        return True

    def point(self, x: float, y: float) -> None:
        """Move the mouse to a place of the window."""
        event = {"type": "mouseMoved", "x": x, "y": y}
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)

    def click(self, x: float, y: float) -> None:
        """Click at a place of the window."""
        self.point(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)

    def press(self, key: str) -> None:
        """A key, for what has the focus."""
        names = {"\t": ("Tab", 9), "\r": ("Enter", 13), " ": (" ", 32), "←": ("ArrowLeft", 37), "→": ("ArrowRight", 39)}
        name, code = names[key]
        event: dict[str, Any] = {"key": name, "windowsVirtualKeyCode": code}
        text = {"text": key} if key in "\r " else {}
        self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyDown"} | event | text)
        self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyUp"} | event)

    def logs(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.driver.get_log(kind)  # type: ignore[no-untyped-call]
        return found

    def complaints(self) -> list[str]:
        """Errors and warnings of the console."""
        return [entry["message"] for entry in self.logs("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """The URLs that were asked for, other than those that hold what they name."""
        events = [json.loads(entry["message"])["message"] for entry in self.logs("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [url for request in sent if not (url := str(request["request"]["url"])).startswith("data:")]


@contextmanager
def open_browser() -> Iterator[Page]:
    """A browser with an empty profile, closed at the end."""
    assert CHROMIUM is not None and DRIVER is not None
    options = Options()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        try:
            yield Page(driver)
        finally:
            driver.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description="Take a picture of a report.")
    parser.add_argument("report")
    parser.add_argument("picture", help="the PNG file to write")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=1000)
    words = parser.parse_args()
    with open_browser() as page:
        page.open(words.report, width=words.width, height=words.height, dark=words.dark)
        page.driver.save_screenshot(words.picture)


if __name__ == "__main__":
    main()
