"""The files of the console: what is served where, to whom, and with which headers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from yarl import URL

from pidkeeper.controller.api import console
from pidkeeper.controller.api.app import build_app
from pidkeeper.controller.api.console.pages import console_routes
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.service.exchange import HttpRequest
from tests.support.memory_member import MemoryMember
from tests.unit.controller.api.conftest import Api, Serve

FOLDER = Path(console.__path__[0])
PATHS = [route.path for route in console_routes()]


@pytest.mark.parametrize("path", PATHS)
async def test_every_file_is_served_to_anybody_and_kept_from_frames_and_foreign_scripts(
    serve: Serve, path: str
) -> None:
    api = await serve(token="secret")
    answer = await api.call("GET", path)
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    head = await api.call("HEAD", path)
    assert (head.status, head.body, head.headers["ETag"]) == (200, b"", answer.headers["ETag"])


async def test_what_has_not_changed_is_not_sent_again(api: Api) -> None:
    first = await api.call("GET", "/")
    tag = first.headers["ETag"]
    for known in (tag, f'"other", W/{tag}'):
        again = await api.call("GET", "/", headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
    assert (await api.call("GET", "/", headers={"If-None-Match": '"other"'})).body == first.body
    assert (await api.call("GET", "/console/console.js")).headers["ETag"] != tag


def test_every_file_of_the_folder_is_served() -> None:
    files = {path.name for path in FOLDER.iterdir() if path.suffix not in {".py", ""}}
    assert {"/" if name == "index.html" else f"/console/{name}" for name in files} == set(PATHS)


def test_no_file_names_another_origin_or_brings_markup_of_its_own() -> None:
    allowed = {"http://www.w3.org/2000/svg"}
    for path in FOLDER.iterdir():
        if path.suffix in {".html", ".css", ".js", ".svg"}:
            text = path.read_text(encoding="utf-8")
            assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= allowed, path.name
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), path.name
            assert not re.search(r"<style|<script(?![^>]*src=)|\sstyle=|\son\w+=", text), path.name


@pytest.mark.parametrize("path", [*PATHS, "/v1/events", "/v1/whoami"])
async def test_the_listener_of_the_probes_serves_none_of_it(member: MemoryMember, path: str) -> None:
    app = build_app(member, limits=ApiLimits())
    assert (await app.probes.dispatch(HttpRequest("GET", URL(path), {}))).status == 404
    assert (await app.probes.dispatch(HttpRequest("GET", URL("/livez"), {}))).status == 200
