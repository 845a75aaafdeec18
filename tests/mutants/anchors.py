"""Finds a function or a module-level constant by its name in a part of the tree, wherever it stands there."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

Function = ast.FunctionDef | ast.AsyncFunctionDef
Constant = ast.Assign | ast.AnnAssign

SHOWN: Final = 6
"""Candidates that an error lists at most."""


class PatchError(Exception):
    """A patch does not fit the code any more: write it anew for what the code says now."""


class NoFitError(PatchError):
    """The function or the syntax that an edit names is not there."""


class NoAnchorError(NoFitError):
    """Nothing in the scope has the name that an edit gives."""


class Anchor(msgspec.Struct, frozen=True):
    """`name`: the dotted path of the module in the tree and the qualified name in it, as one dotted name."""

    path: str
    name: str
    node: Function | Constant


def anchor(sources: Mapping[str, str], name: str) -> Anchor:
    """The only function or constant in `sources`, texts by path, of which `name` is a dotted suffix.

    Raises PatchError that lists the candidates if there is none, or more than one.
    """
    every = [found for path, text in sources.items() for found in anchors_in(path, text)]
    found = [one for one in every if is_suffix(name, one.name)]
    if len(found) > 1:
        raise PatchError(
            f"{len(found)} functions are called {name}: {listed(found, every)}. Name one of them, as they stand here"
        )
    if not found:
        raise NoAnchorError(
            f"there is no function or constant {name}. Name the one that does its work now. "
            f"The nearest names: {listed(_like(name, every), every)}"
        )
    return found[0]


def elsewhere(root: Path, folders: Iterable[str], name: str) -> str:
    """Where `name` is in these folders of `root`, as the end of a message; empty if it is nowhere."""
    every = [
        one for folder in folders for path, text in sources_in(root, folder).items() for one in anchors_in(path, text)
    ]
    found = [one for one in every if is_suffix(name, one.name)]
    return f". Elsewhere there is {listed(found, every)}: has it moved? Then change the scope" if found else ""


def sources_in(root: Path, scope: str) -> dict[str, str]:
    """The Python files in the folder `scope` of `root` and below it, or that file, by path. Raises PatchError."""
    place = root / scope
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    if not files or not all(file.is_file() for file in files):
        raise PatchError(f"there is no code in {scope}: name the folder in which it is now")
    return {str(file.relative_to(root)): file.read_text(encoding="utf-8") for file in files}


@lru_cache(maxsize=256)
def anchors_in(path: str, text: str) -> tuple[Anchor, ...]:
    """All functions of one file, those inside of functions too, and its module-level constants."""
    module = module_of(path)
    return tuple(Anchor(path, f"{module}.{name}", node) for name, node in _named(ast.parse(text), ""))


def module_of(path: str) -> str:
    """The dotted name of the module in the file `path`."""
    return path.removesuffix(".py").replace("/", ".")


def is_suffix(name: str, full: str) -> bool:
    """Whether `name` is the end of the dotted name `full`, in whole parts."""
    return f".{full}".endswith(f".{name}")


def shortest_suffix(full: str, names: Iterable[str]) -> str:
    """The shortest dotted suffix of `full` that no other of `names` ends with; `full` itself if there is none."""
    others = [name for name in names if name != full]
    parts = full.split(".")
    suffixes = (".".join(parts[first:]) for first in range(len(parts) - 1, 0, -1))
    return next((suffix for suffix in suffixes if not any(is_suffix(suffix, other) for other in others)), full)


def _named(parent: ast.AST, prefix: str) -> Iterator[tuple[str, Function | Constant]]:
    for child in ast.iter_child_nodes(parent):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield prefix + child.name, child
                yield from _named(child, f"{prefix}{child.name}.")
            case ast.ClassDef():
                yield from _named(child, f"{prefix}{child.name}.")
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                if not prefix:
                    yield name, child
            case ast.stmt() | ast.excepthandler() | ast.match_case():
                yield from _named(child, prefix)


def _like(name: str, every: Sequence[Anchor]) -> list[Anchor]:
    last = name.rpartition(".")[2]
    close = difflib.get_close_matches(last, {one.name.rpartition(".")[2] for one in every}, n=SHOWN, cutoff=0.5)
    found = [one for one in every if one.name.rpartition(".")[2] in close]
    return sorted(found, key=lambda one: close.index(one.name.rpartition(".")[2]))


def listed(found: Sequence[Anchor], every: Sequence[Anchor]) -> str:
    """Names and places of `found`, each name as short as `every` function allows."""
    names = [one.name for one in every]
    shown = [f"{shortest_suffix(one.name, names)} ({one.path}:{one.node.lineno})" for one in found[:SHOWN]]
    return ", ".join(shown) or "none is like it"
