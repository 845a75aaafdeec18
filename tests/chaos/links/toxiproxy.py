"""The adapter to Toxiproxy: its server as a process, its Python client in threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import requests
from prometheus_client.parser import text_string_to_metric_families
from toxiproxy import Toxiproxy
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from pidkeeper.cli.local_cluster import HOST, free_ports
from tests.chaos.links.proxies import Link, Passed, ProxyError, Stream, Toxic, Traffic

SERVER: Final = "toxiproxy-server"
TOOLS: Final = Path(__file__).resolve().parents[3] / ".tools" / "bin"
START_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.01
THREADS: Final = 16
RECEIVED: Final = "toxiproxy_proxy_received_bytes"
SENT: Final = "toxiproxy_proxy_sent_bytes"

Given = ParamSpec("Given")
Result = TypeVar("Result")


def why_no_toxiproxy() -> str | None:
    """Why it cannot be used here, or None."""
    if _server() is None:
        return f"no {SERVER} in .tools/bin or on PATH: tools/fetch-toxiproxy builds it with Go"
    return None


class ToxiproxyProxies:
    """`Proxies` by Toxiproxy. One of a process at a time: the client keeps the server's address for all its objects.

    On a connection whose receiver takes no more bytes, because it stands still and all buffers are full, Toxiproxy can
    change nothing before it does: it answers with an error after 25 s, and does later what it was asked for.
    """

    program = "Toxiproxy"

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._proxies: dict[str, Any] = {}
        # Of its own: calls that hang must not take the threads that others need.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="toxiproxy")

    async def start(self) -> None:
        server = _server()
        if server is None:
            raise ProxyError(why_no_toxiproxy())
        (port,) = free_ports(1)
        # requests would ask a proxy of the environment for this machine as well.
        os.environ.setdefault("NO_PROXY", HOST)
        Toxiproxy().update_api_consumer(HOST, port)
        self._process = await asyncio.create_subprocess_exec(
            *(server, "-host", HOST, "-port", str(port), "-proxy-metrics"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"LOG_LEVEL": "fatal"},
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await self._ask(Toxiproxy().running):
                    if self._process.returncode is not None:
                        raise ProxyError(f"{server} ended with {self._process.returncode}")
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as error:
            raise ProxyError(f"{server} does not answer on port {port} after {START_SECONDS:g} s") from error

    async def close(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def open(self, links: Iterable[Link]) -> None:
        for link in links:
            self._proxies[link.name] = await self._ask(
                Toxiproxy().create, upstream=link.upstream, name=link.name, listen=link.listen, enabled=True
            )

    async def add(self, link: Link, toxic: Toxic) -> None:
        await self._ask(
            self._proxy(link).add_toxic,
            type=str(toxic.kind),
            stream=str(toxic.stream),
            name=toxic.name,
            toxicity=toxic.toxicity,
            attributes=toxic.attributes,
        )

    async def remove(self, link: Link, toxic: Toxic) -> None:
        await self._destroy(link, toxic.name)

    async def clear(self, link: Link) -> None:
        for name in await self._ask(self._proxy(link).toxics):
            await self._destroy(link, name)

    async def disable(self, link: Link) -> None:
        await self._ask(self._proxy(link).disable)

    async def enable(self, link: Link) -> None:
        await self._ask(self._proxy(link).enable)

    async def traffic(self) -> Traffic:
        text = (await self._ask(APIConsumer.get, "/metrics")).text
        bytes_by_name: dict[tuple[str, str, str], int] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples if family.name in {RECEIVED, SENT} else ():
                labels = sample.labels
                bytes_by_name[family.name, labels["proxy"], labels["direction"]] = int(sample.value)
        return {
            name: {
                stream: Passed(*(bytes_by_name.get((family, name, stream), 0) for family in (RECEIVED, SENT)))
                for stream in Stream
            }
            for name in self._proxies
        }

    def _proxy(self, link: Link) -> Any:
        try:
            return self._proxies[link.name]
        except KeyError:
            raise ProxyError(f"{link.name} was not opened") from None

    async def _ask(self, call: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
        """What the client returns. Raises ProxyError for what it, its server or the answer raises."""
        asked = functools.partial(call, *args, **kwargs)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, asked)
        except (requests.RequestException, InvalidToxic, NotFound, ProxyExists, LookupError, ValueError) as error:
            raise ProxyError(f"Toxiproxy: {error!r}") from error

    async def _destroy(self, link: Link, name: str) -> None:
        if not await self._ask(self._proxy(link).destroy_toxic, name):
            raise ProxyError(f"Toxiproxy did not remove {name} from {link.name}")


def _server() -> str | None:
    return shutil.which(SERVER, path=os.pathsep.join([str(TOOLS), os.environ.get("PATH", "")]))
