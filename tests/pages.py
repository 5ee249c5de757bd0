"""What the tests of pages share: a run to make one of, and a page opened in a browser."""

import time
from pathlib import Path

from untuned.commands.job import Job


def job(command, train, label, folder):
    return Job(command, train, label, folder / command, "auto", 0, None, False)


def opened(browser, page, width=1200):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(Path(page).as_uri())
    eventually(lambda: not find(browser, ".plotly-graph-div:not(:has(.main-svg))"))
    assert browser.get_log("browser") == []


def eventually(condition, seconds=10):
    """Whether a condition holds soon: a browser on a busy machine takes a moment."""
    until = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < until:
        time.sleep(0.05)
    return holds


def find(browser, selector):
    return browser.find_elements("css selector", selector)


def each(browser, selector, script):
    """What a script says of each element."""
    return browser.execute_script(
        f"return Array.from(document.querySelectorAll(arguments[0]), (each) => {script})", selector
    )
