"""Asking the running controllers: a small synchronous HTTP client that follows the leader."""

from __future__ import annotations

import copy
import functools
import http.client
import json
import os
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.protocol.messages import Problem, QuorumDescription

DEFAULT_CONTROLLER: Final = "http://127.0.0.1:8080"
ATTEMPT_SECONDS: Final = 2.0
T = TypeVar("T")


def asks_controllers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which controllers to ask; the command gets them as `members`."""

    @functools.wraps(command)
    def with_members(
        *args: Any, controllers: str | None, cluster: Path | None, timeout: float, token_file: Path | None, **rest: Any
    ) -> Any:
        return command(*args, members=Controllers(controllers, cluster, timeout, token_file), **rest)

    for option in (
        click.option(
            "--token-file", type=click.Path(path_type=Path, exists=True), help="File with the bearer token, if any."
        ),
        click.option(
            "--timeout", default=5.0, show_default=True, help="Seconds to wait for an answer from any controller."
        ),
        click.option(
            "--cluster",
            envvar="PIDKEEPER_CLUSTER",
            type=click.Path(path_type=Path),
            help="Directory of `pidkeeper dev`, or its cluster.json, instead of --controllers.",
        ),
        click.option(
            "--controllers",
            "-c",
            envvar="PIDKEEPER_CONTROLLERS",
            help=f"Base URLs of the controllers, separated by commas. Default: {DEFAULT_CONTROLLER}",
        ),
    ):
        with_members = option(with_members)
    return with_members


class Controllers:
    """The controllers of one cluster, as the options name them."""

    def __init__(
        self, controllers: str | None, cluster: Path | None, timeout: float, token_file: Path | None = None
    ) -> None:
        self.urls = _from_cluster(cluster) if cluster is not None else _from_option(controllers)
        self.timeout = timeout
        self._token = token_file.read_text().strip() if token_file is not None else None

    @classmethod
    def of(cls, urls: list[str], timeout: float = 5.0) -> Controllers:
        """The controllers at these base URLs."""
        return cls(",".join(urls), None, timeout)

    def ask(
        self, shape: type[T], method: str, path: str, body: Any = None, *, attempt_seconds: float = ATTEMPT_SECONDS
    ) -> T:
        """Ask until a member answers, following the leader where one is named.

        `attempt_seconds`: after which a member that does not answer is given up.
        Raises CommandError: UNREACHABLE if nobody answers in time, NOT_AUTHORISED, or REFUSED.
        """
        deadline = time.monotonic() + self.timeout
        urls, last = list(self.urls), "no controller was tried"
        attempt = 0
        while time.monotonic() < deadline:
            url = urls[attempt % len(urls)]
            attempt += 1
            try:
                status, answer = self._once(url, method, path, body, attempt_seconds)
            except (OSError, http.client.HTTPException) as error:
                last = f"{url}: {error or type(error).__name__}"
            else:
                if status == 200:
                    return _decode(url, answer, shape)
                problem = _problem(status, answer)
                last = f"{url}: {problem.code}: {problem.detail}"
                if not problem.retryable:
                    raise CommandError(problem.detail, _exit_code(status))
                if problem.leader is not None:
                    urls, attempt = [problem.leader, *self.urls], 0
            time.sleep(0.02 * min(attempt, 10))
        raise CommandError(f"no answer within {self.timeout:g} s; last: {last}", ExitCode.UNREACHABLE)

    def ask_each(self, shape: type[T], path: str) -> dict[str, T | None]:
        """Ask every member once; None for those that do not answer."""
        answers: dict[str, T | None] = {}
        for url in self.urls:
            try:
                status, answer = self._once(url, "GET", path, None)
            except (OSError, http.client.HTTPException):
                answers[url] = None
            else:
                answers[url] = _decode(url, answer, shape) if status == 200 else None
        return answers

    def described(self) -> list[tuple[str, QuorumDescription]]:
        """Base URL and description of every member that answers; first the one that leads, else that knows most."""
        answers = self.ask_each(QuorumDescription, "/v1/quorum")
        known = [(url, answer) for url, answer in answers.items() if answer is not None]
        return sorted(known, key=lambda each: _knowledge(each[1]), reverse=True)

    def only(self, url: str, timeout: float) -> Controllers:
        """The member at `url` alone, with so many seconds for its answer."""
        one = copy.copy(self)
        one.urls, one.timeout = [url], timeout
        return one

    def leader_first(self) -> Controllers:
        """The same members, but the leader is asked first: others may not have its newest blocks yet."""
        ordered = copy.copy(self)
        for url, description in self.described()[:1]:
            first = url if description.role == "leader" else description.leader_http or url
            ordered.urls = list(dict.fromkeys([first, *self.urls]))
        return ordered

    def _once(
        self, url: str, method: str, path: str, body: Any, attempt_seconds: float = ATTEMPT_SECONDS
    ) -> tuple[int, bytes]:
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port or 80, timeout=min(attempt_seconds, self.timeout)
        )
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def _knowledge(description: QuorumDescription) -> tuple[int, bool, int]:
    return description.term, description.role == "leader", description.commit_index


def _from_option(controllers: str | None) -> list[str]:
    urls = [url.strip().rstrip("/") for url in (controllers or DEFAULT_CONTROLLER).split(",") if url.strip()]
    if not urls:
        raise click.BadParameter(f"no base URL like {DEFAULT_CONTROLLER} was given", param_hint="--controllers")
    for url in urls:
        if not _is_base_url(url):
            raise click.BadParameter(f"{url!r} is not a base URL like {DEFAULT_CONTROLLER}", param_hint="--controllers")
    return urls


def _is_base_url(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is none
        return False


def _from_cluster(cluster: Path) -> list[str]:
    path = cluster / "cluster.json" if cluster.is_dir() else cluster
    try:
        return [member["http"] for member in json.loads(path.read_text())["controllers"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.BadParameter(f"{path} is not a cluster.json: {error}", param_hint="--cluster") from error


def _decode(url: str, answer: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=shape)
    except msgspec.DecodeError as error:
        raise CommandError(f"{url} does not answer like a controller: {error}; check the address") from error


def _problem(status: int, answer: bytes) -> Problem:
    try:
        return msgspec.json.decode(answer, type=Problem)
    except msgspec.DecodeError:
        return Problem(
            "about:blank", "not a problem document", status, os.fsdecode(answer[:200]), "?", -1, status >= 500
        )


def _exit_code(status: int) -> ExitCode:
    return ExitCode.NOT_AUTHORISED if status in {401, 403} else ExitCode.REFUSED
