"""The changes that plant a bug.

How a planted bug is anchored
-----------------------------

An edit names a part of the tree, a function in it, and a piece of syntax in that function, none of them by a position:

- the *scope* is a package folder such as `controller/raft`, or a file. A function that moves to another file or class
  of the folder, or of a folder below it, is still found;
- the *function* is the shortest dotted suffix of its qualified name that is unique in the scope: `_on_vote_request`,
  `RaftLog.append`, and with the module before it where only that tells two apart, `transitions.end`. A module-level
  constant is found by its name in the same way;
- the *pattern* is Python, and matches nodes of the syntax tree (`patterns.py` has the notation): `self.vote = _`. It
  must match exactly once in the function, or the edit says which `occurrence` is meant, from 1.

The new text is Python too. Metavariables that the pattern has bound (`_1`) may stand in it. It is put into the source
at the place of the node, all else stays as it is written.

Keep a pattern as short as tells the node from the others in its function: what it does not name can be renamed
without breaking it. An edit that does not fit any more is a `PatchError` that says where it looked and what it found.
Then write the edit anew for what the code does now; if the code does it no longer, plant another bug in its place.
"""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from tests.mutants.anchors import Anchor, NoFitError, PatchError, anchor, anchors_in, listed
from tests.mutants.patterns import Bound, Match, as_expression, expressions, parsed, statements

Change = Literal["replace", "delete", "insert before", "insert after", "define after"]

_Atom = ast.Attribute | ast.Call | ast.Constant | ast.Dict | ast.List | ast.Name | ast.Set | ast.Subscript
_NUMBERED: Final = re.compile(r"\b_\d+\b")
_NEAREST: Final = 3
"""Statements that an error lists at most."""

_HOLDERS: Final = 5
"""A pattern that more functions have tells none of them from the others."""


class Edit(msgspec.Struct, frozen=True):
    """One change of one function; see the head of this module. `occurrence`: 0 if the pattern matches just once."""

    scope: str
    function: str
    change: Change
    pattern: str
    new: str
    occurrence: int = 0


def replace(scope: str, function: str, pattern: str, new: str, *, occurrence: int = 0) -> Edit:
    """Put `new` in the place of an expression, or of statements that follow each other."""
    return Edit(scope, function, "replace", pattern, new, occurrence)


def delete(scope: str, function: str, pattern: str, *, occurrence: int = 0) -> Edit:
    """Take statements out; `pass` stays where nothing else would."""
    return Edit(scope, function, "delete", pattern, "", occurrence)


def insert_before(scope: str, function: str, pattern: str, new: str, *, occurrence: int = 0) -> Edit:
    """Put statements before the statement that matches."""
    return Edit(scope, function, "insert before", pattern, new, occurrence)


def insert_after(scope: str, function: str, pattern: str, new: str, *, occurrence: int = 0) -> Edit:
    """Put statements after the statement that matches."""
    return Edit(scope, function, "insert after", pattern, new, occurrence)


def define_after(scope: str, function: str, new: str) -> Edit:
    """Put another function or method behind `function`, in the same class if it is a method."""
    return Edit(scope, function, "define after", "", new)


def edited(edit: Edit, sources: Mapping[str, str]) -> tuple[str, str]:
    """The file of `sources` (texts by path) that `edit` changes, and how it reads then.

    Raises PatchError if the edit does not fit, changes nothing, or leaves no Python.
    """
    try:
        place = anchor(sources, edit.function)
        text = _applied(edit, place, sources[place.path])
    except NoFitError as error:
        raise type(error)(f"{error}{_holders(edit, sources)}") from error
    try:
        compile(text, place.path, "exec")
    except SyntaxError as error:
        raise PatchError(f"{place.path} would not compile any more: {error}") from error
    after = next((one.node for one in anchors_in(place.path, text) if one.name == place.name), None)
    if edit.change != "define after" and after is not None and ast.dump(after) == ast.dump(place.node):
        raise PatchError(f"{_where(place)} reads the same with the edit of {edit.pattern!r}: it changes nothing")
    return place.path, text


def _holders(edit: Edit, sources: Mapping[str, str]) -> str:
    """Which functions have what the edit is about, as the end of a message; empty if none has, or too many."""
    if edit.change == "define after":
        return ""
    every = [one for path, text in sources.items() for one in anchors_in(path, text)]
    found = [one for one in every if _matches(edit, one)]
    return f". The pattern matches in {listed(found, every)}" if 0 < len(found) <= _HOLDERS else ""


def _applied(edit: Edit, place: Anchor, source: str) -> str:
    if edit.change == "define after":
        return _with_lines(source, [place.node], "insert after", "\n" + _filled(edit.new, {}))
    match = _only(edit, place, _matches(edit, place))
    if not match.block:
        return _with_expression(source, match.nodes[0], _filled(edit.new, match.bound).strip())
    text = "pass" if edit.change == "delete" and len(match.nodes) == len(match.block) else edit.new
    try:
        return _with_lines(source, match.nodes, edit.change, _filled(text, match.bound))
    except ValueError as error:
        raise PatchError(f"{place.path}:{match.line}: {error}") from error


def _matches(edit: Edit, place: Anchor) -> list[Match]:
    """Of an expression that another one replaces, else of statements."""
    pattern, new = _parsed(edit.pattern), _parsed(edit.new)
    wanted = as_expression(pattern)
    if edit.change == "replace" and wanted is not None and as_expression(new) is not None:
        return expressions(wanted, place.node)
    return statements(pattern, place.node)


def _parsed(text: str) -> list[ast.stmt]:
    try:
        return parsed(text)
    except SyntaxError as error:
        raise PatchError(f"{text!r} is no Python: {error}") from error


def _only(edit: Edit, place: Anchor, found: Sequence[Match]) -> Match:
    """The match that the edit is about."""
    if not found:
        raise NoFitError(
            f"{_where(place)} has nothing that matches {edit.pattern!r}. Write the pattern anew for what the function "
            f"does now, or name the function that does it. The nearest there: {_nearest(edit.pattern, place.node)}"
        )
    lines = ", ".join(str(one.line) for one in found)
    several = f"{_where(place)} has {len(found)} matches of {edit.pattern!r}, in the lines {lines}"
    if len(found) > 1 and not edit.occurrence:
        raise PatchError(f"{several}. Name more of the one that is meant, or say which: occurrence=1 to {len(found)}")
    if edit.occurrence > len(found):
        raise PatchError(f"{several}: none is number {edit.occurrence}")
    return found[max(0, edit.occurrence - 1)]


def _where(place: Anchor) -> str:
    return f"{place.path}:{place.node.lineno} {place.name.rpartition('.')[2]}"


def _nearest(pattern: str, root: ast.AST) -> str:
    heads = {ast.unparse(node).partition("\n")[0]: node.lineno for node in ast.walk(root) if isinstance(node, ast.stmt)}
    close = difflib.get_close_matches(pattern.strip().partition("\n")[0], heads, n=_NEAREST, cutoff=0.3)
    return "; ".join(f"`{head}` in line {heads[head]}" for head in close) or "none is like it"


def _filled(text: str, bound: Bound) -> str:
    """The new text with what its metavariables stand for. Raises PatchError for one that the pattern has not bound."""

    def value(found: re.Match[str]) -> str:
        if found[0] not in bound:
            raise PatchError(f"{text!r} uses {found[0]}, which the pattern does not bind")
        node = bound[found[0]]
        if isinstance(node, str):
            return node
        return ast.unparse(node) if isinstance(node, ast.stmt | _Atom) else f"({ast.unparse(node)})"

    return _NUMBERED.sub(value, textwrap.dedent(text).rstrip())


def _with_expression(source: str, node: ast.AST, text: str) -> str:
    """`source` with the expression `text` in the place of `node`: in brackets where it would be read otherwise."""
    plain = _spliced(source, node, text)
    return plain if _stands(plain, node, text) else _spliced(source, node, f"({text})")


def _spliced(source: str, node: Any, text: str) -> str:
    lines = source.encode().split(b"\n")  # columns count bytes
    before, after = lines[node.lineno - 1][: node.col_offset], lines[node.end_lineno - 1][node.end_col_offset :]
    lines[node.lineno - 1 : node.end_lineno] = [before + text.encode() + after]
    return b"\n".join(lines).decode()


def _stands(source: str, node: Any, text: str) -> bool:
    """Whether just the expression `text` begins in `source` where `node` did."""
    try:
        expected, tree = ast.dump(_parsed_expression(text)), ast.parse(source)
    except SyntaxError:
        return False
    place = (node.lineno, node.col_offset)
    there = (one for one in ast.walk(tree) if isinstance(one, ast.expr) and (one.lineno, one.col_offset) == place)
    return any(ast.dump(one) == expected for one in there)


def _parsed_expression(text: str) -> ast.expr:
    # In a call, since `*arguments` is an expression nowhere else.
    match ast.parse(f"f({text}\n)", mode="eval").body:
        case ast.Call(args=[found], keywords=[]):
            return found
    return ast.parse(f"({text}\n)", mode="eval").body


def _with_lines(source: str, nodes: Sequence[Any], change: Change, text: str) -> str:
    """`source` with statements in the place of `nodes`, before or after them. Raises ValueError at an `elif`."""
    lines = source.split("\n")
    first = min(one.lineno for one in (nodes[0], *getattr(nodes[0], "decorator_list", ())))
    last = nodes[-1].end_lineno
    margin = lines[first - 1][: nodes[0].col_offset]
    if margin.strip() or lines[first - 1].startswith("elif", len(margin)):
        raise ValueError("no statement of its own begins here (an `elif`?): change its condition, or what it holds")
    first, last = {"insert before": (first, first - 1), "insert after": (last + 1, last)}.get(change, (first, last))
    lines[first - 1 : last] = textwrap.indent(text, margin).split("\n") if text else []
    return "\n".join(lines)
