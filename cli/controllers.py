"""Asking the running controllers: a small synchronous HTTP client that follows the leader."""

from __future__ import annotations

import copy
import functools
import http.client
import json
import os
import re
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from pidkeeper.cli.failures import CommandError, ExitCode, NobodyError, RefusedError
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import Problem, QuorumDescription
from pidkeeper.service.settings import SettingsError
from pidkeeper.service.tls_files import TlsFiles

DEFAULT_CONTROLLER: Final = "http://127.0.0.1:8080"
ATTEMPT_SECONDS: Final = 2.0
STEP_SECONDS: Final = 0.1
"""Pause between two looks at what controllers bring about: two heartbeats."""
AGENT_STATUS: Final = "/v1/status"
"""What an agent serves, and no controller."""
AN_AGENT: Final = "that is a broker agent's address: name the controllers"
CERTIFICATES: Final = "certs"
"""The folder of a cluster's directory that `pidkeeper certs dev` and `pidkeeper dev --secure` fill."""
_TOKEN: Final = re.compile(r"[ -~]+")
_FILE: Final = click.Path(exists=True, dir_okay=False)
T = TypeVar("T")


def asks_controllers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which controllers to ask; the command gets them as `members`."""

    @functools.wraps(command)
    def with_members(
        *args: Any,
        controllers: str | None,
        cluster: Path | None,
        timeout: float,
        token_file: Path | None,
        ca_file: str | None,
        certificate_file: str | None,
        key_file: str | None,
        **rest: Any,
    ) -> Any:
        if (certificate_file is None) != (key_file is None):
            raise click.UsageError("--certificate-file and --key-file must be given together")
        tls = TlsFiles(certificate_file=certificate_file, key_file=key_file, ca_file=ca_file)
        return command(*args, members=Controllers(controllers, cluster, timeout, token_file, tls), **rest)

    for option in (
        click.option(
            "--key-file",
            envvar="PIDKEEPER_KEY_FILE",
            show_envvar=True,
            type=_FILE,
            help="Key of --certificate-file, in PEM form.",
        ),
        click.option(
            "--certificate-file",
            envvar="PIDKEEPER_CERTIFICATE_FILE",
            show_envvar=True,
            type=_FILE,
            help="Certificate to show to controllers that speak TLS, in PEM form.",
        ),
        click.option(
            "--ca-file",
            envvar="PIDKEEPER_CA_FILE",
            show_envvar=True,
            type=_FILE,
            help="CA that the controllers' certificates must come from, in PEM form. Default: those of this machine.",
        ),
        click.option(
            "--token-file",
            envvar="PIDKEEPER_TOKEN_FILE",
            show_envvar=True,
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="File with the bearer token, if any.",
        ),
        click.option(
            "--timeout", default=5.0, show_default=True, help="Seconds to wait for an answer from any controller."
        ),
        click.option(
            "--cluster",
            envvar="PIDKEEPER_CLUSTER",
            show_envvar=True,
            type=click.Path(path_type=Path),
            help="Directory of `pidkeeper dev`, or its cluster.json, instead of --controllers.",
        ),
        click.option(
            "--controllers",
            "-c",
            envvar="PIDKEEPER_CONTROLLERS",
            show_envvar=True,
            help=f"Base URLs of the controllers, separated by commas. Default: {DEFAULT_CONTROLLER}",
        ),
    ):
        with_members = option(with_members)
    return with_members


class Controllers:
    """The controllers of one cluster, as the options name them."""

    def __init__(
        self,
        controllers: str | None,
        cluster: Path | None,
        timeout: float,
        token_file: Path | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self.urls = (
            [url for _, url in in_cluster(cluster, "controllers")]
            if cluster is not None
            else base_urls(controllers or DEFAULT_CONTROLLER, "--controllers")
        )
        self.timeout = timeout
        if cluster is not None and tls in {None, TlsFiles()}:
            tls = dev_files(cluster if cluster.is_dir() else cluster.parent, "operator")
        self._tls = tls or TlsFiles()
        self._failures: list[CommandError] = []
        self._token = None if token_file is None else _token_in(token_file)

    @classmethod
    def of(cls, urls: list[str], timeout: float = 5.0, tls: TlsFiles | None = None) -> Controllers:
        """The controllers at these base URLs."""
        return cls(",".join(urls), None, timeout, tls=tls)

    def ask(
        self,
        shape: type[T],
        method: str,
        path: str,
        body: Any = None,
        *,
        attempt_seconds: float = ATTEMPT_SECONDS,
        final: ErrorCode | None = None,
    ) -> T:
        """Ask until a member answers, following the leader where one is named.

        `attempt_seconds`: after which a member that does not answer is given up. `final`: an error that clients of
        Kafka take for one that passes, and that is the answer here.
        Raises NobodyError if nobody answers in time, and RefusedError: NOT_AUTHORISED, or REFUSED.
        """
        deadline = time.monotonic() + self.timeout
        urls, last = list(self.urls), "no controller was tried"
        misnamed: set[str] = set()
        attempt = 0
        while time.monotonic() < deadline:
            url = urls[attempt % len(urls)]
            attempt += 1
            try:
                status, answer = self._once(url, method, path, body, attempt_seconds)
            except (OSError, http.client.HTTPException) as error:
                last = f"{url}: {_reason(error)}"
                if isinstance(error, socket.gaierror):
                    misnamed.add(url)
                else:
                    misnamed.discard(url)
            else:
                misnamed.discard(url)
                if status == 200:
                    return _decode(url, answer, shape)
                problem = _problem(status, answer)
                last = f"{url}: {problem.code}: {problem.detail}"
                if self._is_agent(url, problem):
                    last = f"{url}: {AN_AGENT}"
                    misnamed.add(url)
                    urls.remove(url)
                    if not urls:
                        raise NobodyError(f"no controller to ask; {last}", misnamed=True)
                elif not problem.retryable or (final is not None and problem.code == final.name):
                    raise RefusedError(problem.detail, _exit_code(status), problem.code)
                # A token must not be told on the way to a leader without TLS, whoever names it.
                if problem.leader is not None and (problem.leader.startswith("https://") or not self.all_tls):
                    urls, attempt = [problem.leader, *self.urls], 0
            time.sleep(0.02 * min(attempt, 10))
        raise NobodyError(f"no answer within {self.timeout:g} s; last: {last}", misnamed=misnamed >= set(self.urls))

    def ask_each(self, shape: type[T], path: str) -> dict[str, T | None]:
        """Ask every member once; None for those that do not answer. Raises CommandError if nobody lets us ask."""
        answers: dict[str, T | None] = {}
        failures: list[CommandError] = []
        for url in self.urls:
            try:
                answers[url] = self.ask_one(url, shape, path)
            except CommandError as error:
                if error.exit_code in {ExitCode.FAILED, ExitCode.USAGE}:
                    raise
                answers[url] = None
                failures.append(error)
        self._failures = failures
        refusals = [one for one in failures if one.exit_code == ExitCode.NOT_AUTHORISED and not _is_misnamed(one)]
        if refusals and not any(answer is not None for answer in answers.values()):
            raise refusals[0]
        return answers

    def ask_one(self, url: str, shape: type[T], path: str, *, attempt_seconds: float = ATTEMPT_SECONDS) -> T:
        """Ask once what is at `url`, a controller or an agent.

        Raises NobodyError or CommandError that names it: NOT_AUTHORISED, REFUSED, FAILED if the answer is of no
        `shape`; and USAGE for files of TLS that cannot be used.
        """
        try:
            status, answer = self._once(url, "GET", path, None, attempt_seconds)
        except (OSError, http.client.HTTPException) as error:
            raise _nobody_at(url, error) from error
        if status == http.HTTPStatus.OK:
            return _decode(url, answer, shape)
        problem = _problem(status, answer)
        if self._is_agent(url, problem) and path != AGENT_STATUS:
            raise NobodyError(f"{url}: {AN_AGENT}", misnamed=True)
        raise CommandError(f"{url}: {problem.detail}", _exit_code(status))

    def read(self, url: str, path: str) -> tuple[int, bytes]:
        """Status and body of whatever is at `url`, as they are. Raises NobodyError that names it."""
        try:
            return self._once(url, "GET", path, None)
        except (OSError, http.client.HTTPException) as error:
            raise _nobody_at(url, error) from error

    def nobody(self) -> NobodyError:
        """Why no member gave an answer to the last `ask_each`."""
        reasons = "; ".join(failure.message for failure in self._failures)
        return NobodyError(f"no controller answers: {reasons}", misnamed=all(map(_is_misnamed, self._failures)))

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
        connection = connect(url, min(attempt_seconds, self.timeout), lambda: self.tls_context)
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _is_agent(self, url: str, problem: Problem) -> bool:
        """Whether `problem` is that of an agent which is asked what only controllers serve."""
        if problem.code != ErrorCode.RESOURCE_NOT_FOUND.name:
            return False
        try:
            return self._once(url, "GET", AGENT_STATUS, None)[0] != http.HTTPStatus.NOT_FOUND
        except (OSError, http.client.HTTPException):
            return False

    @property
    def all_tls(self) -> bool:
        """Whether every address that was given is one of TLS."""
        return all(url.startswith("https://") for url in self.urls)

    @functools.cached_property
    def tls_context(self) -> ssl.SSLContext:
        """As the options of TLS say. Made once it is needed. Raises CommandError."""
        from pidkeeper.service.tls import client_context

        try:
            return client_context(self._tls)
        except SettingsError as error:
            raise CommandError(str(error), ExitCode.USAGE) from error


def _reason(error: OSError | http.client.HTTPException) -> str:
    """Why there was no answer, and what to do about it where that is known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused, {error.verify_message}: name its CA with --ca-file"
    if isinstance(error, ssl.SSLError):
        if error.reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}:
            return "it does not speak TLS: name it http://"
        return f"no TLS with it, {(error.reason or str(error)).lower().replace('_', ' ')}"
    if isinstance(error, socket.gaierror):
        return f"its name does not resolve: {error.strerror}"
    if isinstance(error, http.client.RemoteDisconnected):
        return "it hung up without an answer; if it speaks TLS, name it https://"
    told = error.strerror if isinstance(error, OSError) else None
    return told or str(error) or type(error).__name__


def _nobody_at(url: str, error: OSError | http.client.HTTPException) -> NobodyError:
    return NobodyError(f"{url}: {_reason(error)}", misnamed=isinstance(error, socket.gaierror))


def _is_misnamed(error: CommandError) -> bool:
    return isinstance(error, NobodyError) and error.misnamed


def connect(url: str, timeout: float, context: Callable[[], ssl.SSLContext]) -> http.client.HTTPConnection:
    """To the host of a base URL, with TLS if it says so."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout, context=context())
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)


def dev_files(directory: Path, name: str) -> TlsFiles | None:
    """Those that `pidkeeper certs dev` has left below the directory of a cluster; None if there are none."""
    files = TlsFiles(
        certificate_file=str(directory / CERTIFICATES / f"{name}.pem"),
        key_file=str(directory / CERTIFICATES / f"{name}.key"),
        ca_file=str(directory / CERTIFICATES / "ca.pem"),
    )
    return files if all(Path(path).exists() for path in msgspec.structs.astuple(files)) else None


def _knowledge(description: QuorumDescription) -> tuple[int, bool, int]:
    return description.term, description.role == "leader", description.commit_index


def base_urls(text: str, option: str) -> list[str]:
    """The base URLs in the value of an option, which separates them by commas. Raises click.BadParameter."""
    urls = [url.strip().rstrip("/") for url in text.split(",") if url.strip()]
    if not urls:
        raise click.BadParameter(f"no base URL like {DEFAULT_CONTROLLER} was given", param_hint=option)
    for url in urls:
        if not _is_base_url(url):
            raise click.BadParameter(f"{url!r} is not a base URL like {DEFAULT_CONTROLLER}", param_hint=option)
    return urls


def _is_base_url(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is none
        return False


def in_cluster(cluster: Path, members: str) -> list[tuple[int | None, str]]:
    """Ids, as far as given, and base URLs of the `controllers` or `agents` of a cluster. Raises click.BadParameter."""
    path = cluster / "cluster.json" if cluster.is_dir() else cluster
    try:
        found = [(member.get("id"), member["http"]) for member in json.loads(path.read_text())[members]]
        for number, url in found:
            if not isinstance(number, int | None) or not isinstance(url, str) or not _is_base_url(url):
                raise ValueError(f"there is no member {number!r} at {url!r}")
        if not found and members == "controllers":
            raise ValueError("it names no controllers")
    except OSError as error:
        reason = f"{path} is not a cluster.json: {error.strerror or error}"
        raise click.BadParameter(reason, param_hint="--cluster") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise click.BadParameter(f"{path} is not a cluster.json: {error}", param_hint="--cluster") from error
    return found


def _token_in(file: Path) -> str:
    """Raises click.BadParameter for a file that has none."""
    try:
        token = file.read_bytes().strip().decode("ascii")
    except OSError as error:
        raise click.BadParameter(f"{file}: {error.strerror or error}", param_hint="--token-file") from error
    except UnicodeDecodeError:
        token = ""
    if _TOKEN.fullmatch(token) is None:
        raise click.BadParameter(f"{file} does not hold one token in one line", param_hint="--token-file")
    return token


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
