"""docs/operations.md: its commands are those of the command line, and its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import click
import pytest

from pidkeeper.cli.main import cli

DOCS: Final = Path(__file__).resolve().parents[3] / "docs"
GUIDE: Final = (DOCS / "operations.md").read_text()
COMMANDS: Final = sorted(set(re.findall(r"(?m)(?:^(?:\$ )?|`)pidkeeper ([a-z][^`\n]*)", GUIDE)))
"""What follows `pidkeeper` in code blocks and between backticks."""


def anchors(text: str) -> set[str]:
    """What links to the headings of a page may name, as GitHub makes it."""
    titles = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_guide_exists_and_takes_its_options(line: str) -> None:
    words = shlex.split(line, comments=True)
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    assert {word for word in words if word.startswith("-")} <= known | {"--help"}


def test_the_links_of_the_guide_lead_somewhere() -> None:
    for page, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", GUIDE):
        file = (DOCS / page) if page else DOCS / "operations.md"
        assert file.exists(), page
        assert not anchor or anchor in anchors(file.read_text()), f"{page}#{anchor}"
