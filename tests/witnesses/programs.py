"""Programs of other projects, run to their end: bounded in time, with what they printed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.support.java_servers import JVM
from tests.support.kafka_broker import JARS
from tests.witnesses.judgement import Outcome, failed

TOOLS: Final = "org.apache.kafka.tools"
TOOL_SECONDS: Final = 120.0
"""Longer than any of Kafka's tools waits for an answer."""

_HEAP: Final = "-Xmx256m"
_LOGGED: Final = re.compile(r"^(SLF4J|WARNING|\S+ main (ERROR|WARN) (Reconfiguration|StatusLogger))")
"""What logging itself has to say."""

_EXCEPTION: Final = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)")


class EndedError(RuntimeError):
    """A program ended with another code than was expected; the text is what it printed."""


def java(main: str, *arguments: str, options: Iterable[str] = ()) -> list[str]:
    """The command that runs one of Kafka's programs, with `options` of the virtual machine."""
    return ["java", _HEAP, *JVM, *options, "-cp", f"{JARS}/*", main, *arguments]


def run(
    command: list[str],
    *,
    stdin: str = "",
    code: int = 0,
    seconds: float = TOOL_SECONDS,
    directory: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    """What the program printed, standard error last. Raises EndedError for another code, or if it takes too long."""
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            cwd=directory,
            env={**os.environ, "LC_ALL": "C", **(variables or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise EndedError(f"{command[-1]} did not end within {seconds:g} s") from error
    text = "\n".join(line for line in (done.stdout + done.stderr).splitlines() if not _LOGGED.match(line))
    if done.returncode != code:
        raise EndedError(f"ended with {done.returncode}, not {code}: {text.strip()}")
    return text


def tool(name: str, *arguments: str, stdin: str = "", code: int = 0) -> str:
    """What one of Kafka's tools prints: `name` is its class in org.apache.kafka.tools. Raises EndedError."""
    return run(java(f"{TOOLS}.{name}", *arguments), stdin=stdin, code=code)


def refusal(text: str) -> str:
    """The name of the exception that a tool printed, or else its first line."""
    found = _EXCEPTION.search(text)
    return found[1] if found else text.strip().partition("\n")[0]


def observed(case: Callable[[], Outcome]) -> Outcome:
    """Its outcome; a failure if its program ended otherwise, or what it printed was not understood."""
    try:
        return case()
    except (EndedError, ValueError, KeyError, IndexError, AssertionError) as error:
        return failed(f"{type(error).__name__}: {error}")
