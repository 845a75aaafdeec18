"""`python -m deploy.chart_readme`: write the chart's table of values again, from the comments in values.yaml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

CHART: Final = Path(__file__).resolve().parents[1] / "helm" / "pidkeeper"
README: Final = CHART / "README.md"
MARK: Final = "<!-- What follows is written by `make chart`. -->\n"

_KEY: Final = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z][A-Za-z0-9]*):")
_INDENT: Final = 2


class Value(NamedTuple):
    """A value by its path from the top, its default as JSON, and what its comment says."""

    path: str
    default: str
    comment: str


def values(text: str) -> Iterator[Value]:
    """Each value of a values.yaml that has a comment of its own, which begins with `# -- `."""
    defaults = yaml.safe_load(text)
    parents: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("# -- "):
            comment = [words.removeprefix("# -- ")]
        elif words.startswith("# ") and comment:
            comment.append(words.removeprefix("# "))
        elif (found := _KEY.match(line)) is not None:
            parents[len(found["indent"]) // _INDENT :] = [found["key"]]
            if comment:
                yield Value(".".join(parents), json.dumps(_at(defaults, parents)), " ".join(comment))
            comment = []
        else:
            comment = []


def _at(defaults: Any, parents: list[str]) -> Any:
    for key in parents:
        defaults = defaults[key]
    return defaults


def table(text: str) -> str:
    """The rows of the README, in the order of the file."""
    rows = ["| Value | Default | What it is |", "| --- | --- | --- |"]
    for value in values(text):
        comment = value.comment.replace("|", "\\|")
        rows.append(f"| `{value.path}` | `{value.default}` | {comment} |")
    return "\n".join(rows) + "\n"


def rendered() -> str:
    """The README as it ought to be: all before the mark is written by hand."""
    head, _, _ = README.read_text().partition(MARK)
    return f"{head}{MARK}\n{table((CHART / 'values.yaml').read_text())}"


if __name__ == "__main__":
    README.write_text(rendered())
