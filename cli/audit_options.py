"""Options that several commands of `pidkeeper audit` have."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from pidkeeper.pipeline.engine.waiting import ALONE_BYTES
from pidkeeper.pipeline.files.location import is_uri, locate
from pidkeeper.pipeline.limits import DEFAULT
from pidkeeper.pipeline.session import DEFAULT_MASTER, DEFAULT_MEMORY, submitted, why_not

Function = Callable[..., Any]
"""What becomes a command."""

DEFAULT_OUT: Final = Path("build/audit")
URI: Final = "a URI such as s3://bucket/path or webhdfs://namenode:9870/path"
_URI_FORM: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")


class EngineOptions(msgspec.Struct, frozen=True):
    """`engine`: spark or local; None: whichever suits.

    What a session of Spark is made with: without `master` it is local, or that of spark-submit; without `memory` a
    master has its own; `conf`: settings of Spark by name.
    """

    engine: str | None
    master: str | None
    memory: str | None
    conf: dict[str, str]

    @property
    def wants_spark(self) -> bool:
        """Whether Spark is asked for, be there ever so little to do."""
        return self.engine == "spark" or bool(self.master or self.memory or self.conf) or submitted()


class PlaceType(click.Path):
    """The Location of a local directory, or of a URI, which only its file system can check."""

    name = "directory or URI"

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Ends the command for what is neither."""
        if not is_uri(value):
            return locate(Path(os.fsdecode(super().convert(value, param, ctx))))
        if _URI_FORM.fullmatch(value) is None:
            self.fail(f"{value} is not a URI: write SCHEME://HOST/PATH, such as s3://bucket/audit", param, ctx)
        try:
            return locate(value)
        except OSError as error:
            self.fail(str(error), param, ctx)


def out_option(help_text: str) -> Callable[[Function], Function]:
    """Add `--out`: a local directory or a URI."""
    text = f"{help_text} A local path, or {URI}."
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
            help=f"Log directory of a Kafka broker. A local path, a glob, or {URI}.",
        ),
    )


def store_option(command: Function) -> Function:
    """Add `--store`."""
    return click.option(
        "--store",
        help="Object store that partition logs have their bytes in; the command's --cluster names its own. A local "
        f"path, or {URI}.",
    )(command)


def storm_option(command: Function) -> Function:
    """Add `--storm-blocks`."""
    return click.option(
        "--storm-blocks",
        default=DEFAULT.storm_blocks_per_minute,
        show_default=True,
        type=click.IntRange(1),
        help="Blocks that a broker may take within a minute before that is called a storm.",
    )(command)


def engine_options(command: Function) -> Function:
    """Add `--engine`, `--master`, `--memory` and `--conf`; the command gets them as one `engine`."""

    @functools.wraps(command)
    def bundled(
        *args: Any, engine: str | None, master: str | None, memory: str | None, conf: dict[str, str], **others: Any
    ) -> Any:
        if engine == "local" and (master or memory or conf):
            raise click.UsageError("--master, --memory and --conf are for --engine spark")
        return command(*args, engine=EngineOptions(engine, master, memory, conf), **others)

    return _with_options(
        bundled,
        click.option(
            "--engine",
            type=click.Choice(["spark", "local"]),
            help="Spark, on this machine or a cluster; or this process alone, which needs no Java. "
            f"Default: Spark, which is not started for less than {ALONE_BYTES >> 20} MiB that is new.",
        ),
        click.option(
            "--master",
            help="Spark master, such as spark://host:7077, or a Spark Connect server, sc://host:15002. "
            f"Default: {DEFAULT_MASTER}, or that of spark-submit.",
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
