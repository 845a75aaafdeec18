"""The recording and alert rules: they parse, name what is there, and each alert has its tests and its runbook."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.monitoring import PROMETHEUS, alerts, known_names, names, rules
from tests.support.prometheus import promtool

ROOT = Path(__file__).resolve().parents[2]
TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))
OPERATIONS = ROOT / "docs" / "operations.md"


def expectations() -> dict[str, list[list[Any]]]:
    """By alert: the alerts that each of its expectations says to fire."""
    found = defaultdict(list)
    for file in TESTS:
        for test in yaml.safe_load(file.read_text())["tests"]:
            for expected in test["alert_rule_test"]:
                found[expected["alertname"]].append(expected["exp_alerts"])
    return found


def headings() -> list[str]:
    return re.findall(r"(?m)^#+ (.+)$", OPERATIONS.read_text())


def test_promtool_accepts_the_configuration_and_the_rules_that_it_loads() -> None:
    done = promtool("check", "config", PROMETHEUS / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout
    assert "rules.yml" in done.stdout


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_alerts_fire_from_their_conditions_and_stay_silent_otherwise(file: Path) -> None:
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_group_of_rules_is_evaluated_in_order_in_the_tests() -> None:
    """Without it promtool takes groups in any order, and an alert sees a recording of one evaluation before."""
    groups = [group["name"] for group in yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"]]
    for file in TESTS:
        assert yaml.safe_load(file.read_text())["group_eval_order"] == groups


def test_every_alert_is_tested_in_both_directions() -> None:
    tested = expectations()
    assert tested.keys() == alerts().keys()
    assert {alert for alert, expected in tested.items() if not any(expected)} == set(), "never seen to fire"
    assert {alert for alert, expected in tested.items() if all(expected)} == set(), "never seen to be silent"


def test_every_alert_has_a_runbook_and_every_runbook_its_alert() -> None:
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{name.lower()}"
    books = [heading for heading in headings() if re.fullmatch(r"Pidkeeper\w+", heading)]
    assert sorted(books) == sorted(alerts())


@pytest.mark.parametrize("name", alerts())
def test_a_runbook_says_what_an_alert_means_how_to_confirm_it_and_what_to_do(name: str) -> None:
    (text,) = re.findall(rf"(?ms)^### {name}\n(.*?)^##", OPERATIONS.read_text())
    meaning, confirm, do = re.split(r"^- \*\*(?:Confirm|Do):\*\* ", text, flags=re.MULTILINE)
    assert meaning.strip()
    assert do.strip()
    assert re.search(r"`[^`]+`", confirm), "a command, or what is said"
    for metric in re.findall(r"`metrics \S+ (\w+)`", text):
        assert any(known.startswith(f"pidkeeper_{metric}") for known in known_names()), metric


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_how_bad_it_is_and_what_was_measured(name: str) -> None:
    rule = alerts()[name]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert "{{" not in rule["annotations"]["summary"], "a summary is the same for all, so that they can be grouped"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_can_be_parsed_and_names_what_is_there(rule: dict[str, Any]) -> None:
    assert names(rule["expr"]) - known_names() == set()


def test_a_recording_is_made_before_it_is_used() -> None:
    recorded: set[str] = set()
    of_all = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        assert names(rule["expr"]) & of_all <= recorded, f"{rule} uses what comes later"
        recorded |= {rule["record"]} if "record" in rule else set()
