"""The pictures of the console in the README: four agents whose producers come and go, for five minutes.

python -m tests.support.console_pictures docs/images
"""

from __future__ import annotations

import http.client
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from pidkeeper.cli.local_cluster import Agent, LocalCluster
from tests.integration.test_console import BROWSER, FLAGS, begin_transaction, register
from tests.support.cluster import running_cluster
from tests.support.http_calls import address_of

SECONDS: Final = 300
"""As much as the chart shows."""
PICTURES: Final = (("console.png", 1280, 1022, "light"), ("console-phone.png", 390, 844, "dark"))


def claim(agent: Agent, until: float) -> None:
    """Producers of one broker: now many, now few."""
    connection = http.client.HTTPConnection(*address_of(agent.http))
    rng = random.Random(agent.id)
    while time.monotonic() < until:
        crowd = rng.random() ** 2
        for _ in range(int(300 * crowd)):
            connection.request("POST", "/v1/init-producer-id", b"{}", {"Content-Type": "application/json"})
            connection.getresponse().read()
        time.sleep(1.5)
    connection.close()


def take(browser: Browser, cluster: LocalCluster, folder: Path) -> None:
    """Each picture after some seconds, so that something has happened before its eyes."""
    for name, width, height, scheme in PICTURES:
        # The type wants a literal.
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="light" if scheme == "light" else "dark"
        )
        page = context.new_page()
        page.goto(f"{cluster.leader().http}/")
        page.fill("#owner-id", "1500")
        page.click("#owner-form button")
        page.wait_for_timeout(20_000)
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        page.screenshot(path=str(folder / name))
        context.close()


def main(folder: Path) -> None:
    """Write the pictures into `folder`."""
    until = time.monotonic() + SECONDS
    with (
        tempfile.TemporaryDirectory() as directory,
        running_cluster(Path(directory), agents=4, agent_options={"min_reserve_ids": 4000}) as cluster,
    ):
        leader = cluster.leader()
        begin_transaction(leader, register(leader, 5), "shop-checkout-3")
        crowds = [threading.Thread(target=claim, args=(agent, until)) for agent in cluster.layout.agents]
        for crowd in crowds:
            crowd.start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
            time.sleep(max(0.0, until - time.monotonic() - 50))
            take(browser, cluster, folder)
            browser.close()
        for crowd in crowds:
            crowd.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
