"""`pidkeeper debug bundle`: what somebody who is to help has to see, in one file, without a secret in it."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import os
import platform
import re
import tarfile
import tomllib
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from pidkeeper.cli.controllers import Controllers, asks_controllers, base_urls, in_cluster
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.service.build import build_version

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Of one answer or settings file; the longest answer, of 1,000 blocks, has 200 KiB."""

MAX_LOG_BYTES: Final = 8 * 1024 * 1024
"""The end of each log."""

PROBES: Final = ("/livez?verbose", "/readyz?verbose", "/metrics")
CONTROLLER: Final = (
    *PROBES,
    "/v1/quorum",
    "/v1/brokers",
    "/v1/producer-ids/blocks?limit=1000",
    "/v1/transactions",
    "/v1/migration/zookeeper",
)
AGENT: Final = (*PROBES, "/v1/status")

MIN_SECRET_CHARACTERS: Final = 8
"""Of what is searched for: anything shorter is found in what is none."""

_ANSWERS: Final = {200, 421, 503}
"""Of a member that lets itself be asked: it also may not lead, or not be ready."""

HIDDEN: Final = "(left out)"
_SECRET_KEY: Final = re.compile(r"password|secret|token|credential|digest|(^|_)key$", re.IGNORECASE)
_SECRET_TEXT: Final = re.compile(
    r"(?i)(authorization: *\S+|bearer) +\S+|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)


@click.group()
def debug() -> None:
    """Gather what is needed to find out what is wrong."""


@debug.command()
@click.option("--agents", "urls", envvar="PIDKEEPER_AGENTS", show_envvar=True, help="Base URLs of agents, too.")
@click.option(
    "--config", "configs", type=click.Path(path_type=Path), multiple=True, help="A configuration file. Several times."
)
@click.option("--log", "logs", type=click.Path(path_type=Path), multiple=True, help="A log. Several times.")
@click.option("--dir", "directories", type=click.Path(path_type=Path), multiple=True, help="A data directory.")
@click.option("--out", type=click.Path(path_type=Path), help="The file. Default: a new one in this directory.")
@asks_controllers
@click.pass_context
def bundle(
    ctx: click.Context,
    urls: str | None,
    configs: Sequence[Path],
    logs: Sequence[Path],
    directories: Sequence[Path],
    out: Path | None,
    members: Controllers,
) -> None:
    """Write a .tar.gz of what all members say of themselves, and of the files that are named.

    With --cluster, also the logs, configuration and data directories of a local cluster. Of data directories it has
    names and sizes alone. Tokens, keys and passwords stay out: what the files hold that the settings name is searched
    for in all that goes in. It has names of hosts, brokers and transactional ids. Exits 6 if it is incomplete, because
    a member did not answer or a file could not be read.
    """
    now = dt.datetime.now(dt.UTC)
    path = out or Path(f"pidkeeper-debug-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    cluster: Path | None = ctx.params.get("cluster")
    found = Bundle(now)
    agents = base_urls(urls, "--agents") if urls else _agents_of(cluster)
    local = [] if cluster is None else [cluster if cluster.is_dir() else cluster.parent]
    for config in [*configs, *(file for one in local for file in sorted((one / "config").glob("*.toml")))]:
        found.add_from(f"config/{config.name}", config, found.settings)
    for url in members.urls:
        _ask(found, members, "controllers", url, CONTROLLER)
    for url in agents:
        _ask(found, members, "agents", url, AGENT)
    for log in [*logs, *(file for one in local for file in sorted((one / "logs").glob("*.log")))]:
        found.add_from(f"logs/{log.name}", log, _log)
    for directory in [*directories, *(child for one in local for child in sorted((one / "data").glob("*")))]:
        found.add_from(f"data/{directory.name}.txt", directory, _listing)
    try:
        found.write(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    for problem in found.problems:
        click.echo(problem, err=True)
    incomplete = ", incomplete" if found.problems else ""
    click.echo(f"wrote {path}{incomplete}: {len(found.files)} files, {path.stat().st_size:,} bytes")
    if found.problems:
        raise click.exceptions.Exit(ExitCode.INCOMPLETE)


class Bundle:
    """Files by name, and why some are not there. What settings name as secret is known, and left out everywhere."""

    def __init__(self, now: dt.datetime) -> None:
        self.files: dict[str, bytes] = {}
        self.problems: list[str] = []
        self._secrets: set[str] = set()
        self._now = now

    def settings(self, path: Path) -> bytes:
        """What a configuration file says: comments, in which anything may stand, are left out."""
        import tomli_w

        with path.open("rb") as file:
            settings = tomllib.loads(file.read(MAX_ANSWER_BYTES).decode())
        return tomli_w.dumps(self._hidden(settings)).encode()

    def _hidden(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._hidden(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self._hidden(one, key) for one in value]
        if not _SECRET_KEY.search(key.removesuffix("_file")):
            return value
        # The name of a file that is there tells nothing; what is there in its place may be the secret itself.
        if key.endswith("_file") and isinstance(value, str) and Path(value).is_file():
            self._secrets |= _lines_of(Path(value))
            return value
        if len(str(value)) >= MIN_SECRET_CHARACTERS:
            self._secrets.add(str(value))
        return HIDDEN

    def add(self, name: str, content: bytes) -> None:
        """Put it in without secrets, under another name if there is one of that name."""
        text = _SECRET_TEXT.sub(HIDDEN, content.decode("utf-8", "replace"))
        # The longest first: one may be a part of another.
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        content = text.encode()
        unique, number = name, 1
        while unique in self.files:
            number += 1
            unique = f"{name}.{number}"
        self.files[unique] = content

    def add_from(self, name: str, path: Path, read: Callable[[Path], bytes]) -> None:
        """Put in what `read` makes of a path, or why it cannot."""
        try:
            self.add(name, read(path))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            self.problems.append(f"{path}: {reason}")

    def write(self, path: Path) -> None:
        """As a .tar.gz that its owner alone can read. Raises OSError, also if the file is there."""
        about = {
            "made": self._now.isoformat(timespec="seconds"),
            "version": build_version(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "problems": self.problems,
        }
        files = {"bundle.json": msgspec.json.format(msgspec.json.encode(about)), **self.files}
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with (
            os.fdopen(descriptor, "wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", filename="") as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for name, content in files.items():
                entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
                entry.size, entry.mtime, entry.mode = len(content), int(self._now.timestamp()), 0o600
                archive.addfile(entry, io.BytesIO(content))


def _agents_of(cluster: Path | None) -> list[str]:
    return [] if cluster is None else [url for _, url in in_cluster(cluster, "agents")]


def _ask(found: Bundle, members: Controllers, kind: str, url: str, paths: Sequence[str]) -> None:
    """Put in what a member says of itself."""
    place = urllib.parse.urlsplit(url).netloc.replace(":", "_")
    for path in paths:
        try:
            status, answer = members.read(url, path)
        except CommandError as error:
            # Whoever does not answer one question is asked no other: each takes seconds.
            found.problems.append(error.message)
            return
        name = path.partition("?")[0].strip("/").removeprefix("v1/").replace("/", "-")
        kind_of_file = "txt" if path in PROBES else "json"
        found.add(f"{kind}/{place}/{name}.{kind_of_file}", answer[:MAX_ANSWER_BYTES])
        if status not in _ANSWERS:
            found.problems.append(f"{url}{path}: answered {status}")


def _log(path: Path) -> bytes:
    """Its end."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_LOG_BYTES))
        return file.read(MAX_LOG_BYTES)


def _lines_of(path: Path) -> set[str]:
    """What a file of secrets holds."""
    try:
        with path.open("rb") as file:
            lines = file.read(MAX_ANSWER_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return set()
    return {line.strip() for line in lines if len(line.strip()) >= MIN_SECRET_CHARACTERS}


def _listing(path: Path) -> bytes:
    """Names, bytes and times of what is in a directory, nothing of its contents."""
    if not path.is_dir():
        raise ValueError("it is no directory")
    return "".join(f"{line}\n" for line in sorted(_lines(path))).encode()


def _lines(path: Path) -> Iterator[str]:
    for file in path.rglob("*"):
        state = file.lstat()
        changed = dt.datetime.fromtimestamp(state.st_mtime, dt.UTC).isoformat(timespec="seconds")
        yield f"{file.relative_to(path)}\t{state.st_size}\t{changed}"
