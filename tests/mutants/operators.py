"""Small changes to Python source, one at a time: what a slip of the keyboard or of the mind would do.

Only bodies of functions are changed. Values of modules and classes are bounds and tuning; annotations, texts of errors
and docstrings decide nothing.

`assert` statements are left out. One states what follows from the code around it, so no test can make a correct program
violate it, and what is changed in it survives for that reason alone. An `InvariantViolation` under an `if` is not left
out: it guards against what a peer or a disk may bring, so a test can bring it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Final

import msgspec

from tests.mutants.anchors import module_of

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
_SYMBOLS: Final[dict[type[ast.AST], str]] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Div: "/",
    ast.Mod: "%",
    ast.Pow: "**",
}
_EXTREMES: Final = {"min": "max", "max": "min"}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


class Mutant(msgspec.Struct, frozen=True):
    """One change. `number` is its place in its file; `key` names it for as long as the code that it changes stays.

    `function` is the dotted path of the module and the qualified name in it. `code` is the smallest expression or
    statement that shows the change, in normal form (of a compound statement its head); `occurrence` counts from 1 where
    the function has the same change of the same code more than once. `first` and `last` are the lines of the file whose
    execution reaches the change, `line` is the one where it stands.
    """

    file: str
    function: str
    code: str
    mutation: str
    occurrence: int
    number: int
    first: int
    last: int
    line: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What identifies it across moves of code and edits of other code."""
        return self.function, self.code, self.mutation, self.occurrence


class _Site(msgspec.Struct):
    """A place to change: the function and statement around it, the text of the change, and the change.

    `seen`: the expression or statement that shows the change, where `node` is no more than a name or a number.
    """

    function: str
    statement: ast.stmt
    node: ast.AST
    mutation: str
    change: Callable[[], None]
    seen: ast.AST


def mutants(file: str, source: str) -> list[Mutant]:
    """All changes to `source`, the text of the file `file`."""
    module = module_of(file)
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    for number, site in enumerate(_sites(ast.parse(source))):
        function, code = f"{module}.{site.function}", ast.unparse(site.seen).partition("\n")[0]
        seen[function, code, site.mutation] += 1
        line, last = site.node.lineno, site.node.end_lineno  # type: ignore[attr-defined]
        occurrence = seen[function, code, site.mutation]
        first = site.statement.lineno
        found.append(Mutant(file, function, code, site.mutation, occurrence, number, first, last, line))
    return found


def mutated(source: str, number: int, filename: str) -> CodeType:
    """The code of `source` with change `number`; line numbers stay."""
    tree = ast.parse(source)
    for place, site in enumerate(_sites(tree)):
        if place == number:
            site.change()
            break
    return compile(ast.fix_missing_locations(tree), filename, "exec")


def _sites(tree: ast.Module) -> Iterator[_Site]:
    for name, body in _bodies(tree, ""):
        for statements, place in _statements(body):
            yield from _of_statement(name, statements, place)


def _bodies(parent: ast.AST, prefix: str) -> Iterator[tuple[str, list[ast.stmt]]]:
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, _FUNCTIONS):
            yield prefix + child.name, child.body
            yield from _bodies(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _bodies(child, f"{prefix}{child.name}.")


def _statements(body: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], int]]:
    """Every statement in `body` and in the blocks inside it, by its list and place.

    Functions inside are left out, and assertions.
    """
    for place, statement in enumerate(list(body)):
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)) or _is_docstring(statement):
            continue
        if not isinstance(statement, ast.Assert):
            yield body, place
        for block in _blocks(statement):
            yield from _statements(block)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for inner in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield inner.body


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _of_statement(name: str, statements: list[ast.stmt], place: int) -> Iterator[_Site]:
    statement = statements[place]
    if _may_go(statement):

        def delete() -> None:
            statements[place] = ast.copy_location(ast.Pass(), statement)

        yield _Site(name, statement, statement, "deleted", delete, statement)
    if isinstance(statement, ast.Raise):
        return
    if isinstance(statement, ast.Return) and statement.value is not None and not _is_none(statement.value):

        def give_none(statement: ast.Return = statement) -> None:
            statement.value = ast.Constant(None)

        yield _Site(name, statement, statement, "returns None", give_none, statement)
    if isinstance(statement, ast.AugAssign) and type(statement.op) in _ARITHMETIC:
        yield _swap(name, statement, statement, "op", _ARITHMETIC)
    for place_of_node in _expressions(statement, statement):
        yield from _of_expression(name, statement, place_of_node)


def _may_go(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    if isinstance(statement, ast.Return):
        return statement.value is None
    return isinstance(statement, ast.Assign | ast.AugAssign | ast.Raise | ast.Continue)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


class _Place(msgspec.Struct):
    """Where an expression hangs, and the smallest expression or statement around it that says something by itself."""

    node: ast.expr
    parent: ast.AST
    field: str
    index: int | None
    around: ast.AST

    def put(self, new: ast.expr) -> Callable[[], None]:
        """The change that puts `new` there."""
        return lambda: _put(self.parent, self.field, self.index, ast.copy_location(new, self.node))


def _expressions(parent: ast.AST, around: ast.AST) -> Iterator[_Place]:
    """Every expression of a statement itself, outermost first, with the place where it hangs."""
    if isinstance(parent, ast.expr) and not isinstance(parent, ast.UnaryOp | ast.Starred | ast.Slice):
        around = parent
    for field, value in ast.iter_fields(parent):
        if field in {"annotation", "returns", "msg"} and not isinstance(parent, ast.Call):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.JoinedStr) or not isinstance(child, ast.expr | ast.keyword | ast.comprehension):
                continue
            if isinstance(child, ast.expr):
                yield _Place(child, parent, field, index, around)
            yield from _expressions(child, around)


def _of_expression(name: str, statement: ast.stmt, place: _Place) -> Iterator[_Site]:
    node = place.node
    if isinstance(node, ast.Compare):
        for position, operator in enumerate(node.ops):
            yield _swap(name, statement, node, "ops", _COMPARISONS, position, operator)
    elif isinstance(node, ast.BoolOp):
        new: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        text = "and -> or" if isinstance(node.op, ast.And) else "or -> and"
        yield _Site(name, statement, node, text, place.put(ast.BoolOp(new, node.values)), node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _Site(name, statement, node, "not removed", place.put(node.operand), node)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield _swap(name, statement, node, "op", _ARITHMETIC)
    elif isinstance(node, ast.Constant):
        for value in _other_values(node.value):
            text = f"{node.value!r} -> {value!r}"
            yield _Site(name, statement, node, text, place.put(ast.Constant(value)), place.around)
    elif isinstance(node, ast.Name) and node.id in _EXTREMES:
        other = _EXTREMES[node.id]
        text = f"{node.id} -> {other}"
        yield _Site(name, statement, node, text, place.put(ast.Name(other, ast.Load())), place.around)


def _other_values(value: object) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value - 1]
    return []


def _swap(
    name: str,
    statement: ast.stmt,
    node: Any,
    field: str,
    table: Any,
    index: int | None = None,
    operator: ast.AST | None = None,
) -> _Site:
    old = type(operator if operator is not None else getattr(node, field))
    new = table[old]
    text = f"{_SYMBOLS[old]} -> {_SYMBOLS[new]}"
    return _Site(name, statement, node, text, lambda: _put(node, field, index, new()), node)


def _put(parent: ast.AST, field: str, index: int | None, new: ast.AST) -> None:
    if index is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[index] = new
