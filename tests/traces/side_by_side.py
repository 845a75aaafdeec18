"""What both commands of this folder do: seeds are followed in several processes, and the figures written down."""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

Followed = TypeVar("Followed")


def arguments_of(title: str | None, *, seeds: int, most_steps: int) -> argparse.Namespace:
    """`seeds`, `seed`, `steps` and `jobs`, as the command line has them; these are the numbers without it."""
    parser = argparse.ArgumentParser(description=title.splitlines()[0] if title else None)
    parser.add_argument("--seeds", type=int, default=seeds, help="how many seeds")
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(2**40), help="the first one; at random if missing"
    )
    parser.add_argument("--steps", type=int, default=most_steps, help="of each course at most")
    parser.add_argument("--jobs", type=int, default=2, help="side by side")
    return parser.parse_args()


def followed(
    follow: Callable[..., Followed], seeds: Iterable[int], arguments: argparse.Namespace, told_each: int
) -> Iterator[Followed]:
    """What `follow(seed, most_steps=…)` gives, as it comes; each so many it is told how far that is."""
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        found = pool.imap_unordered(partial(follow, most_steps=arguments.steps), seeds)
        for number, one in enumerate(found, 1):
            yield one
            if number % told_each == 0:
                print(f"{number} of {arguments.seeds} seeds", file=sys.stderr, flush=True)


def write(report: Any, path: Path) -> None:
    """The figures of a run, for programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
