"""docs/conformance.md says of each of Kafka's tests what stands for it here: what it names must be there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "conformance.md").read_text(encoding="utf-8")
VERDICT = re.compile(r"(same|different: |partly|does not apply: )")
CLASSES = {
    "AllocateProducerIdsRequestTest",
    "ControllerApisTest",
    "KRaftMigrationZkWriterTest",
    "KafkaApisTest",
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


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 100
    known = {file: names_in(TESTS / file) for file, _ in named}
    assert [f"{file}::{name}" for file, name in named if name not in known[file]] == []


def test_every_row_says_what_stands_for_it_and_whether_it_is_the_same() -> None:
    for kafka, here, verdict in rows():
        assert re.fullmatch(r"`(test|should)\w+`", kafka), kafka
        assert VERDICT.match(verdict), f"{kafka}: {verdict}"
        assert (here == "none") == verdict.startswith("does not apply"), f"{kafka}: {here}: {verdict}"
        assert here == "none" or re.fullmatch(r"`[\w/]+\.py::\w+`(, `[\w/]+\.py::\w+`)*", here), f"{kafka}: {here}"


def test_each_of_kafkas_classes_is_there_and_no_test_twice() -> None:
    classes = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    names = [f"{part.split()[0]}.{name}" for part in classes for name in re.findall(r"^\| `(\w+)`", part, re.MULTILINE)]
    assert {name.split(".")[0] for name in names} == CLASSES
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert len(names) == len(rows()) > 120


@pytest.mark.parametrize("file", ["test_transitions.py", "test_transaction_decisions.py"])
def test_kafkas_names_in_docstrings_are_on_the_page(file: str) -> None:
    text = (TESTS / "unit/controller/state" / file).read_text(encoding="utf-8")
    wanted = re.findall(r"\b((?:should|test)[A-Z]\w+)(?![\w{])", text)
    assert wanted
    assert [name for name in wanted if f"`{name}`" not in PAGE] == []
