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
    until = time.monotonic() + 10
    drawn = "return document.querySelectorAll('.plotly-graph-div:not(:has(.main-svg))').length"
    while browser.execute_script(drawn) and time.monotonic() < until:
        time.sleep(0.05)
    assert browser.get_log("browser") == []


def find(browser, selector):
    return browser.find_elements("css selector", selector)


def each(browser, selector, script):
    """What a script says of each element."""
    return browser.execute_script(
        f"return Array.from(document.querySelectorAll(arguments[0]), (each) => {script})", selector
    )
