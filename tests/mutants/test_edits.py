"""Edits find functions and syntax wherever they stand, and say what is wrong where they do not fit."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.anchors import PatchError, anchors_in, shortest_suffix
from tests.mutants.edits import Edit, define_after, delete, edited, insert_after, insert_before, replace
from tests.mutants.patterns import as_expression, expressions, parsed
from tests.mutants.planted import CODE, Planted, patched

LOG = '''
LIMIT: Final = 3

class Log:
    """Entries."""

    def append(self, entry: Entry) -> int:
        """Add one."""
        size: int = len(entry.data)  # bytes
        if size > LIMIT and not self.failed or self.full:
            raise ValueError(f"{size} is too long")
        elif size == 0:
            self.skip()
        self.entries.append(entry)
        return self.write(
            entry,
            sync=True,
            room=size,
        )

    def clear(self) -> None:
        """Drop all."""
        self.entries.clear()

def clear() -> None:
    one.clear()
    two.clear()
'''
VOTES = """
class Votes:
    def append(self):
        return 1
"""
SOURCES = {"raft/log.py": LOG, "raft/inner/votes.py": VOTES}


def changed(*edits: Edit) -> str:
    """The lines that stand in LOG after the edits and not before, joined by `|`."""
    sources = dict(SOURCES)
    for edit in edits:
        path, text = edited(edit, sources)
        sources[path] = text
    before = LOG.splitlines()
    return "|".join(line.strip() for line in sources["raft/log.py"].splitlines() if line and line not in before)


@pytest.mark.parametrize(
    ("edit", "lines"),
    [
        (replace("raft", "Log.append", "_ > LIMIT", "False"), "if False and not self.failed or self.full:"),
        (replace("raft", "Log.append", "_ or self.full", "_"), "if _:"),
        (replace("raft", "Log.append", "self.full", "a or b"), "if size > LIMIT and not self.failed or (a or b):"),
        (
            replace("raft", "Log.append", "_1 and _2", "_2 and _1"),
            "if (not self.failed) and (size > LIMIT) or self.full:",
        ),
        (replace("raft", "Log.append", "_1 = len(_2.data)", "_1 = _2.size"), "size = entry.size"),
        (replace("raft", "Log.append", "self.write(_1, room=_, sync=_)", "self.keep(_1)"), "return self.keep(entry)"),
        (replace("raft", "Log.append", "self.write(..., sync=True)", "0"), "return 0"),
        (replace("raft", "Log.append", "self._1(entry, ...)", "self._1()"), "return self.write()"),
        (replace("raft", "Log.append", "raise _", "return 0"), "return 0"),
        (replace("raft", "Log.clear", "self.entries.clear()", "if self.full:\n    return"), "if self.full:|return"),
        (replace("raft", "log.clear", "_.clear()", "pass", occurrence=2), "pass"),
        (replace("raft", "LIMIT", "3", "4"), "LIMIT: Final = 4"),
        (delete("raft", "Log.append", "self.skip()"), "pass"),
        (delete("raft", "Log.append", "self.entries.append(_)"), ""),
        (insert_before("raft", "Log.append", "if _ > LIMIT and _ or _:", "size = 0"), "size = 0"),
        (insert_after("raft", "Log.append", "_ = len(_)", "size += 1\nsize += 2"), "size += 1|size += 2"),
        (define_after("raft", "Log.clear", "def drop(self):\n    self.clear()"), "def drop(self):|self.clear()"),
    ],
)
def test_an_edit_changes_what_it_names(edit: Edit, lines: str) -> None:
    assert changed(edit) == lines


def test_a_deleted_statement_is_gone_and_all_else_stays() -> None:
    path, text = edited(delete("raft", "Log.append", "self.entries.append(_)"), SOURCES)
    assert (path, text) == ("raft/log.py", LOG.replace("        self.entries.append(entry)\n", ""))


def test_a_new_method_belongs_to_the_class() -> None:
    _, text = edited(define_after("raft", "Log.clear", "def drop(self):\n    self.clear()"), SOURCES)
    assert "raft.log.Log.drop" in {one.name for one in anchors_in("raft/log.py", text)}


def test_layout_annotations_and_places_do_not_matter() -> None:
    moved = "class Store:\n    def append(self, one):\n        size = len(one.data)\n        return (\n    size)\n"
    edit = replace("raft", "append", "_1 = len(_.data)", "_1 = 0")
    assert edited(edit, {"raft/new/store.py": moved})[1] == moved.replace("len(one.data)", "0")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (replace("raft", "append", "_", "_"), r"2 functions are called append: Log\.append \(.*:7\), Votes\.append"),
        (replace("raft", "clear", "_", "_"), r"2 functions are called clear: Log\.clear \(.*\), log\.clear \("),
        (replace("raft", "apend", "_", "_"), r"no function or constant apend.*nearest names: Log\.append"),
        (replace("raft", "Log.append", "self.fulll", "0"), r"raft/log\.py:7 append has nothing that matches"),
        (replace("raft", "Log.append", "if _ > LIMT:", "0"), "The nearest there: .*`if size > LIMIT"),
        (replace("raft", "log.clear", "_.clear()", "0"), "2 matches .* in the lines 26, 27"),
        (replace("raft", "log.clear", "_.clear()", "0", occurrence=3), "2 matches .* in the lines 26, 27"),
        (replace("raft", "Log.clear", "self.full", "0"), r"The pattern matches in Log\.append \(raft/log\.py:7\)$"),
        (delete("raft", "gone", "_ = len(_)"), r"no function .* gone\. .* The pattern matches in Log\.append"),
        (replace("raft", "LIMIT", "3", "3"), "it changes nothing"),
        (replace("raft", "Log.clear", "self.entries.clear()", "break"), "would not compile any more"),
        (replace("raft", "Log.append", "self.full", "_1"), "uses _1, which the pattern does not bind"),
        (replace("raft", "Log.append", "self.full", "("), "no Python"),
        (insert_before("raft", "Log.append", "if _ == 0:", "pass"), "elif"),
    ],
)
def test_an_edit_that_does_not_fit_says_why(edit: Edit, message: str) -> None:
    with pytest.raises(PatchError, match=message):
        edited(edit, SOURCES)


def test_a_bug_that_does_not_fit_says_where_its_function_is(tmp_path: Path) -> None:
    for folder in (*CODE, "controller/raft", "controller/node"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "controller/node/log.py").write_text(LOG)
    bug = Planted("full", "", "", (replace("controller/raft", "Log.append", "self.full", "False"),))
    with pytest.raises(
        PatchError,
        match=r"full: in controller/raft, Log.append: .* Elsewhere there is append \(controller/node/log.py:7",
    ):
        patched(bug, tmp_path)
    gone = Planted("full", "", "", (replace("controller/quorum", "Log.append", "self.full", "False"),))
    with pytest.raises(PatchError, match="there is no code in controller/quorum"):
        patched(gone, tmp_path)


def test_a_bug_of_several_edits_is_planted_as_one(tmp_path: Path) -> None:
    (tmp_path / "raft").mkdir()
    (tmp_path / "raft/log.py").write_text(LOG)
    edits = (replace("raft", "Log.append", "self.full", "0"), replace("raft", "Log.append", "_ or 0", "1"))
    assert "        if 1:\n" in patched(Planted("two", "", "", edits), tmp_path)["raft/log.py"]


@pytest.mark.parametrize(
    ("pattern", "source", "count"),
    [
        ("_1 == _1", "f(a.b == a.b, a == b)", 1),
        ("f(..., x, ...)", "f(a, x), f(x), f(x, k=1), f(y)", 3),
        ("f(x)", "f(x), f(x, k=1), f(x, y)", 1),
        ("f(k=1)", "f(j=2, k=1), f(k=1)", 1),
        ("f(..., k=1)", "f(j=2, k=1), f(k=1), f(k=2)", 2),
        ("... and x", "a and x, a and b and x, x and a", 2),
        ("self._1", "self.a, other.a", 1),
        ("1", "1, True, 1.0, 'a'", 1),
        ("'_'", "'_', 'a'", 1),
        ("x", "f'{x}', x", 1),
    ],
)
def test_patterns_match_by_structure(pattern: str, source: str, count: int) -> None:
    wanted = as_expression(parsed(pattern))
    assert wanted is not None
    assert len(expressions(wanted, ast.parse(source))) == count


def test_the_shortest_suffix_that_is_unique() -> None:
    names = ["raft.log.Log.append", "raft.log.clear", "raft.votes.Votes.append", "state.log.Log.append"]
    assert [shortest_suffix(name, names) for name in names] == [
        "raft.log.Log.append", "clear", "Votes.append", "state.log.Log.append"
    ]  # fmt: skip
