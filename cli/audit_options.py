"""Options that several commands of `pidkeeper audit` have."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from pidkeeper.pipeline.session import DEFAULT_MASTER, DEFAULT_MEMORY, why_not
from pidkeeper.pipeline.store import is_uri

Function = Callable[..., Any]
"""What becomes a command."""

DEFAULT_OUT: Final = Path("build/audit")
URI_OF_INPUTS: Final = "a URI such as s3://bucket/path or webhdfs://namenode:9870/path"
_URI_OF_OUTPUTS: Final = "a URI of a Hadoop file system"
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")


class SparkOptions(msgspec.Struct, frozen=True):
    """What a session is made with. Without `master` it is local, or that of spark-submit; without `memory` a master has
    its own; `conf`: settings of Spark by name."""

    master: str | None
    memory: str | None
    conf: dict[str, str]


class PlaceType(click.Path):
    """A local directory, or a URI, which only its file system can check."""

    name = "directory or URI"

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A Path or a URI. Ends the command for what is neither."""
        if not is_uri(value):
            return super().convert(value, param, ctx)
        if _URI.fullmatch(value) is None:
            self.fail(f"{value} is not a URI: write SCHEME://HOST/PATH, such as hdfs://namenode:8020/audit", param, ctx)
        return value


def out_option(help_text: str, where: str = _URI_OF_OUTPUTS) -> Callable[[Function], Function]:
    """Add `--out`: a local directory or a URI."""
    text = f"{help_text} A local path, or {where}."
    return click.option("--out", default=DEFAULT_OUT, show_default=True, type=PlaceType(), help=text)


def paths_options(command: Function) -> Function:
    """Add what to read: `data`, `clusters` and `segments`."""
    return _with_options(
        command,
        click.argument("data", nargs=-1),
        click.option(
            "--cluster",
            "clusters",
            multiple=True,
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            help="Directory of `pidkeeper dev` or `pidkeeper demo --keep`; the data of all its members is read.",
        ),
        click.option(
            "--segments",
            multiple=True,
            help=f"Log directory of a Kafka broker. A local path, a glob, or {URI_OF_INPUTS}.",
        ),
    )


def spark_options(command: Function) -> Function:
    """Add `--master`, `--memory` and `--conf`; the command gets them as one `spark_options`."""

    @functools.wraps(command)
    def bundled(*args: Any, master: str | None, memory: str | None, conf: dict[str, str], **others: Any) -> Any:
        return command(*args, spark_options=SparkOptions(master, memory, conf), **others)

    return _with_options(
        bundled,
        click.option(
            "--master",
            help=f"Spark master, such as spark://host:7077. Default: {DEFAULT_MASTER}, or that of spark-submit.",
        ),
        click.option(
            "--memory",
            help=f"Java heap of the driver and of each executor. Default: {DEFAULT_MEMORY} locally, else Spark's.",
        ),
        click.option(
            "--conf",
            multiple=True,
            metavar="NAME=VALUE",
            callback=_settings,
            help="A setting of Spark; it overrides spark-defaults.conf. May be repeated.",
        ),
    )


def _with_options(function: Function, *options: Callable[[Function], Function]) -> Function:
    for option in reversed(options):
        function = option(function)
    return function


def _settings(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in values:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, such as spark.executor.memory=4g")
        if (reason := why_not(name, value)) is not None:
            raise click.BadParameter(f"{text!r}: {reason}")
        settings[name] = value
    return settings
