"""docs/metrics.md against what is exposed: name, type, labels, unit and meaning of every metric, in both directions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client.core import Metric

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
UNITS: Final = ("seconds", "bytes", "ratio")


class Row(msgspec.Struct, frozen=True):
    """A line of a table. `labels`: sorted; None where no sample shows them."""

    name: str
    kind: str
    labels: tuple[str, ...] | None
    unit: str
    meaning: str

    def __str__(self) -> str:
        labels = " ".join(f"`{label}`" for label in self.labels or ())
        return f"| `{self.name}` | {self.kind} | {labels} | {self.unit} | {self.meaning} |"


def listed(section: str) -> dict[str, Row]:
    """The rows below the heading `section`, by name."""
    text = PAGE.read_text(encoding="utf-8")
    assert f"\n## {section}\n" in text, f"{PAGE.name} has no section {section}"
    rows = {}
    for line in text.split(f"\n## {section}\n")[1].split("\n## ")[0].splitlines():
        if line.startswith("| `"):
            name, kind, labels, unit, meaning = (cell.strip() for cell in line.strip("|").split("|"))
            row = Row(name.strip("`"), kind, tuple(label.strip("`") for label in labels.split()), unit, meaning)
            assert row.name not in rows, f"{row.name} is listed twice"
            rows[row.name] = row
    return rows


def exposed(families: Iterable[Metric]) -> dict[str, Row]:
    """A row for each family, by name. Several of one name are one: a leader shows samples that its followers lack."""
    rows: dict[str, Row] = {}
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found = {tuple(sorted(sample.labels.keys() - {"le"})) for sample in family.samples}
        assert len(found) <= 1, f"samples of {name} with different labels: {found}"
        labels = found.pop() if found else None
        if name not in rows or labels is not None:
            rows[name] = Row(name, family.type, labels, _unit(name), family.documentation)
    return rows


def differences(page: dict[str, Row], found: dict[str, Row]) -> list[str]:
    """What to change in the page, in words."""
    wrong = [f"take out {name}: nobody exposes it" for name in sorted(page.keys() - found.keys())]
    for name, row in sorted(found.items()):
        said = page.get(name)
        if said is not None and row.labels is None:
            row = msgspec.structs.replace(row, labels=said.labels)  # noqa: PLW2901 - no sample contradicts it
        if said != row:
            wrong.append(f"the line of {name} is to be {row}")
    return wrong


def _unit(name: str) -> str:
    words = name.split("_")
    return next((unit for unit in UNITS if unit in words), "")
