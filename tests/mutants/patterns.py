"""Patterns of Python syntax, written as Python: they match nodes of a syntax tree, not text.

In a pattern

- `_` stands for any expression, statement or name; `_1`, `_2`, … too, and the same one for the same thing each time;
- `...` among arguments, elements or statements stands for any number of them; among arguments for keywords as well;
- a header such as `if _.done():` stands for the statement with any body;
- an `else`, `except` or `finally` that the pattern does not have may be there.

Line breaks, comments and annotations never matter: `x = 1` matches `x: int = 1`. Keywords match in any order.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

METAVARIABLE: Final = re.compile(r"_\d*")
_ANYTHING: Final = "_"
_IGNORED: Final = frozenset({"annotation", "kind", "returns", "simple", "type_comment"})
_OPTIONAL: Final = frozenset({"finalbody", "handlers", "orelse"})
_BLOCKS: Final = ("body", "orelse", "finalbody")

Bound = Mapping[str, Any]
"""What metavariables stand for: a node, or a name as str."""


class Match(msgspec.Struct, frozen=True):
    """An expression, or statements that follow each other in `block`, which is empty for an expression."""

    nodes: Sequence[ast.expr] | Sequence[ast.stmt]
    bound: Bound
    block: Sequence[ast.stmt] = ()

    @property
    def line(self) -> int:
        """Where it begins, from 1."""
        return self.nodes[0].lineno


def parsed(text: str) -> list[ast.stmt]:
    """The statements of a pattern or of its replacement; the body of a header alone is `...`. Raises SyntaxError."""
    text = textwrap.dedent(text).strip("\n")
    return ast.parse(f"{text} ..." if text.endswith(":") else text).body


def as_expression(statements: Sequence[ast.stmt]) -> ast.expr | None:
    """The expression that the statements are, if they are nothing else."""
    match statements:
        case [ast.Expr(value=value)]:
            return value
    return None


def expressions(pattern: ast.expr, root: ast.AST) -> list[Match]:
    """The expressions below `root` that match, in the order of the source. None inside of f-strings is looked at."""
    found = [Match([node], bound) for node in _below(root) if (bound := _match(pattern, node, {})) is not None]
    return sorted(found, key=lambda one: (one.line, one.nodes[0].col_offset))


def statements(pattern: Sequence[ast.stmt], root: ast.AST) -> list[Match]:
    """The runs of statements below `root`, or at it, that match, in the order of the source."""
    size = len(pattern)
    blocks = [[root]] if isinstance(root, ast.Assign | ast.AnnAssign) else _blocks(root)
    runs = ((block, block[first : first + size]) for block in blocks for first in range(len(block) - size + 1))
    found = [Match(run, bound, block) for block, run in runs if (bound := _match(pattern, run, {})) is not None]
    return sorted(found, key=lambda one: one.line)


def _below(node: ast.AST) -> Iterator[ast.expr]:
    for field, value in ast.iter_fields(node):
        if field in _IGNORED or field == "decorator_list":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr):
                yield child
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _below(child)


def _blocks(root: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(root):
        # The body of a lambda or the alternative of a conditional expression is no block.
        yield from (block for field in _BLOCKS if isinstance(block := getattr(node, field, None), list))


def _match(pattern: Any, node: Any, bound: Bound) -> Bound | None:
    """What the metavariables stand for, those of `bound` included; None if `node` is something else."""
    pattern, node = _without_annotation(pattern), _without_annotation(node)
    if (name := _metavariable(pattern, node)) is not None:
        return _bind(name, node, bound)
    if isinstance(pattern, list) and isinstance(node, list):
        return _match_run(pattern, node, bound)
    if type(pattern) is not type(node):
        return None
    if isinstance(pattern, ast.Call):
        return _match_call(pattern, node, bound)
    if isinstance(pattern, ast.AST) and not isinstance(pattern, ast.Constant):
        return _match_fields(pattern, node, bound)
    return bound if _same(pattern, node) else None


def _same(pattern: Any, node: Any) -> bool:
    if isinstance(pattern, ast.Constant):
        return type(pattern.value) is type(node.value) and bool(pattern.value == node.value)
    return bool(pattern == node)


def _without_annotation(node: Any) -> Any:
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return ast.Assign([node.target], node.value)
    return node


def _metavariable(pattern: Any, node: Any) -> str | None:
    """The metavariable that `pattern` is, if it is one and may stand for what `node` is."""
    match pattern:
        case ast.Name(id=name) if isinstance(node, ast.expr):
            pass
        case ast.Expr(value=ast.Name(id=name)) if isinstance(node, ast.stmt):
            pass
        case str(name) if isinstance(node, str):
            pass
        case _:
            return None
    return name if METAVARIABLE.fullmatch(name) else None


def _bind(name: str, node: Any, bound: Bound) -> Bound | None:
    if name == _ANYTHING:
        return bound
    if name in bound:
        return bound if _shown(bound[name]) == _shown(node) else None
    return {**bound, name: node}


def _shown(value: Any) -> str:
    return ast.unparse(value) if isinstance(value, ast.AST) else str(value)


def _match_run(patterns: list[Any], nodes: list[Any], bound: Bound) -> Bound | None:
    if not patterns:
        return None if nodes else bound
    if _is_gap(patterns[0]):
        rests = (_match_run(patterns[1:], nodes[skipped:], bound) for skipped in range(len(nodes) + 1))
        return next((rest for rest in rests if rest is not None), None)
    first = _match(patterns[0], nodes[0], bound) if nodes else None
    return None if first is None else _match_run(patterns[1:], nodes[1:], first)


def _is_gap(pattern: Any) -> bool:
    node = pattern.value if isinstance(pattern, ast.Expr) else pattern
    return isinstance(node, ast.Constant) and node.value is ...


def _match_call(pattern: ast.Call, node: ast.Call, bound: Bound) -> Bound | None:
    found = _match(pattern.func, node.func, bound)
    if found is not None:
        found = _match_run(pattern.args, node.args, found)
    rest = list(node.keywords)
    for wanted in pattern.keywords:
        if found is None:
            return None
        given = next((one for one in rest if _match(wanted, one, found) is not None), None)
        if given is None:
            return None
        rest.remove(given)
        found = _match(wanted, given, found)
    return None if rest and not any(_is_gap(one) for one in pattern.args) else found


def _match_fields(pattern: ast.AST, node: ast.AST, bound: Bound) -> Bound | None:
    found: Bound | None = bound
    for field, wanted in ast.iter_fields(pattern):
        left_out = field in _OPTIONAL and wanted == []
        if found is not None and field not in _IGNORED and not left_out:
            found = _match(wanted, getattr(node, field), found)
    return found
