"""docs/conformance.md says of each of Kafka's tests what stands for it here: what it names must be there."""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "conformance.md").read_text(encoding="utf-8")
NAMED = re.compile(r"(?:test_\w+::)?test_\w+")
VERDICT = re.compile(r"(same|different: |partly|does not apply: )")
CLASSES = {
    "AllocateProducerIdsRequestTest",
    "ControllerApisTest",
    "GroupMetadataManagerTest",
    "KRaftMigrationZkWriterTest",
    "KafkaApisTest",
    "OffsetMetadataManagerTest",
    "ProducerIdControlManagerTest",
    "ProducerIdExpirationTest",
    "ProducerIdManagerTest",
    "ProducerIdsBlockTest",
    "ProducerIdsImageTest",
    "ProducerIdsIntegrationTest",
    "ProducerStateManagerTest",
    "TransactionCoordinatorTest",
    "TransactionMetadataTest",
    "UnifiedLogTest",
    "ZkMigrationClientTest",
    "ZkMigrationIntegrationTest",
}


def rows() -> list[tuple[str, str, str]]:
    """Kafka's test, what stands for it, the verdict; of every line of every table but its head."""
    lines = [
        line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| Kafka's"))
    ]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert all(len(row) == 3 for row in cells), [row for row in cells if len(row) != 3]
    return [(row[0], row[1], row[2]) for row in cells]


@cache
def files_by_test() -> dict[str, list[Path]]:
    """The files below tests/ that define a test function or method, by its name."""
    found = defaultdict(list)
    for file in sorted(TESTS.rglob("*.py")):
        for name in names_in(ast.parse(file.read_text(encoding="utf-8"))):
            found[name].append(file.relative_to(TESTS))
    return dict(found)


def names_in(body: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in body.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield from names_in(node)


def why_unclear(test: str, known: Mapping[str, Sequence[Path]]) -> str:
    """Why `test`, as the page names it, is not just one of those `known`; empty if it is."""
    module, _, name = test.rpartition("::")
    files = known.get(name, [])
    if not files:
        near = [f"{one} in {known[one][0]}" for one in difflib.get_close_matches(name, known, n=3, cutoff=0.8)]
        return f"{test} is in no file; the nearest: {near}"
    if len(files) == 1:
        return f"{test} is in {files[0]} alone: leave its module out" if module else ""
    if [file.stem for file in files].count(module) != 1:
        return f"{test} may be in {[str(file) for file in files]}: name it with one module, as {files[0].stem}::{name}"
    return ""


def test_every_test_that_the_page_names_is_just_one() -> None:
    named = [name for _, here, verdict in rows() for name in NAMED.findall(f"{here} {verdict}")]
    assert len(named) > 100
    assert [why for name in named if (why := why_unclear(name, files_by_test()))] == []


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("test_one", ""),
        ("test_a::test_two", ""),
        ("test_ones", "test_ones is in no file; the nearest: ['test_one in unit/test_a.py']"),
        ("test_b::test_one", "test_b::test_one is in unit/test_a.py alone: leave its module out"),
        (
            "test_two",
            "test_two may be in ['unit/test_a.py', 'test_b.py']: name it with one module, as test_a::test_two",
        ),
    ],
)
def test_a_name_that_is_not_just_one_test_is_told(test: str, why: str) -> None:
    known = {"test_one": [Path("unit/test_a.py")], "test_two": [Path("unit/test_a.py"), Path("test_b.py")]}
    assert why_unclear(test, known) == why


def test_every_row_says_what_stands_for_it_and_whether_it_is_the_same() -> None:
    for kafka, here, verdict in rows():
        assert re.fullmatch(r"`(test|should)\w+`", kafka), kafka
        assert VERDICT.match(verdict), f"{kafka}: {verdict}"
        assert (here == "none") == verdict.startswith("does not apply"), f"{kafka}: {here}: {verdict}"
        assert here == "none" or re.fullmatch(rf"`{NAMED.pattern}`(, `{NAMED.pattern}`)*", here), f"{kafka}: {here}"


def test_each_of_kafkas_classes_is_there_and_no_test_twice() -> None:
    classes = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    names = [f"{part.split()[0]}.{name}" for part in classes for name in re.findall(r"^\| `(\w+)`", part, re.MULTILINE)]
    assert {name.split(".")[0] for name in names} == CLASSES
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert len(names) == len(rows()) > 120


@pytest.mark.parametrize("module", ["test_transitions", "test_transaction_decisions", "test_classic_group"])
def test_kafkas_names_in_docstrings_are_on_the_page(module: str) -> None:
    (file,) = TESTS.rglob(f"{module}.py")
    text = file.read_text(encoding="utf-8")
    wanted = re.findall(r"\b((?:should|test)[A-Z]\w+)(?![\w{])", text)
    assert wanted
    assert [name for name in wanted if f"`{name}`" not in PAGE] == []
