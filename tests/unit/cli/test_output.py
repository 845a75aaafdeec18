"""Output for people and for programs."""

from __future__ import annotations

import json

import click
import msgspec
import pytest
import yaml
from click.testing import CliRunner

from pidkeeper.cli.output import JSON, SCHEMA_VERSION, YAML, output_option, print_document, print_facts, print_table


class Value(msgspec.Struct):
    first: int
    name: str | None


def test_json_is_one_document_of_exact_integers(capsys: pytest.CaptureFixture[str]) -> None:
    print_document(Value(2**63 - 1, None), JSON)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema_version": 1, "first": 2**63 - 1, "name": None}
    assert out.count("\n") > 3
    assert err == ""


@pytest.mark.parametrize("name", ["no", "1e3", "2026-11-26", "012", "null", "a: b", "- ", "\u2028", "é"])
def test_yaml_says_what_json_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = [Value(2**63 - 1, name), Value(0, None)]
    print_document(values, JSON)
    said = json.loads(capsys.readouterr().out)
    print_document(values, YAML)
    assert yaml.safe_load(capsys.readouterr().out) == said
    assert said["items"][0] == {"first": 2**63 - 1, "name": name}


def test_a_list_is_the_items_of_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_document([], JSON)
    assert json.loads(capsys.readouterr().out) == {"schema_version": SCHEMA_VERSION, "items": []}


def test_what_has_a_schema_of_its_own_keeps_that_version(capsys: pytest.CaptureFixture[str]) -> None:
    print_document({"schema_version": 3, "verdict": "clean"}, JSON)
    assert json.loads(capsys.readouterr().out) == {"schema_version": 3, "verdict": "clean"}


def test_documents_of_a_stream_can_be_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        print_document(Value(number, None), JSON, one_of_many=True)
    assert [json.loads(line)["first"] for line in capsys.readouterr().out.splitlines()] == [1, 2]
    for number in (1, 2):
        print_document(Value(number, None), YAML, one_of_many=True)
    assert [one["first"] for one in yaml.safe_load_all(capsys.readouterr().out)] == [1, 2]


def test_a_table_is_never_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    long = "http://" + "x" * 300
    print_table(("First", "Http"), [(2**63 - 1, long), (7, None)])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0].split() == ["First", "Http"]
    assert lines[-2].split() == [str(2**63 - 1), long]
    assert lines[-1].split() == ["7", "-"]


def test_numbers_stand_at_the_right_and_text_at_the_left(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("Number", "Text"), [(1, "a"), (12345678, "longer")])
    rows = [line for line in capsys.readouterr().out.splitlines() if "a" in line.split() or "longer" in line]
    assert rows[0].index("1") == rows[1].index("8")
    assert rows[0].index("a") == rows[1].index("l")


def test_an_empty_table_has_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("First", "Last"), [])
    assert capsys.readouterr().out.split()[:2] == ["First", "Last"]


def test_facts_are_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts([("ClusterId", "c"), ("LeaderId", None), ("Term", 12)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["ClusterId", "c"], ["LeaderId", "-"], ["Term", "12"]]


@pytest.mark.parametrize("value", ["voters are [1, 2]", "there is no [zookeeper] here", "[/nothing]", ":smile: [b]x"])
def test_what_looks_like_markup_is_printed_as_it_is(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_facts([("Reason", value)])
    assert value in capsys.readouterr().out
    print_table(("[Reason]",), [(value,)])
    out = capsys.readouterr().out
    assert value in out
    assert "[Reason]" in out


def test_the_output_option() -> None:
    @click.command()
    @output_option
    def show(output: str) -> None:
        click.echo(output)

    assert CliRunner().invoke(show, []).output == "table\n"
    assert CliRunner().invoke(show, ["--output", "json"]).output == "json\n"
    assert CliRunner().invoke(show, ["-o", "yaml"]).output == "yaml\n"
    assert CliRunner().invoke(show, ["-o", "xml"]).exit_code == 2
