"""The dashboards: what is committed is what the code makes, and every query names something that is there."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.build import rendered
from tests.support.monitoring import DASHBOARDS, Panel, flattened, known_names, names, panels

SCHEMA_VERSION = 42
COLUMNS = 24


def boards() -> dict[str, dict[str, Any]]:
    return {file.stem: json.loads(file.read_text()) for file in sorted(DASHBOARDS.iterdir())}


def test_what_is_committed_is_what_the_code_makes() -> None:
    assert {file.name: file.read_text() for file in DASHBOARDS.iterdir()} == rendered(), "run `make dashboards`"


@pytest.mark.parametrize("name", ["agents", "allocation", "migration", "quorum", "records"])
def test_a_dashboard_is_one_of_grafanas_schema(name: str) -> None:
    board = boards()[name]
    assert board["schemaVersion"] == SCHEMA_VERSION
    assert board["uid"] == f"pidkeeper-{name}"
    known = Dashboard.from_json(board)
    assert json.loads(json.dumps(known, cls=JSONEncoder)) == board, "a key that the schema does not have"


@pytest.mark.parametrize("name", ["agents", "allocation", "migration", "quorum", "records"])
def test_panels_have_numbers_of_their_own_and_do_not_overlap(name: str) -> None:
    board = boards()[name]
    ids = [panel["id"] for panel in flattened(board)]
    assert ids == list(range(1, len(ids) + 1))
    cells = [
        (x, y)
        for panel in flattened(board)
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < COLUMNS


@pytest.mark.parametrize("name", ["agents", "allocation", "migration", "quorum", "records"])
def test_everything_is_chosen_by_data_source_cluster_job_and_instance(name: str) -> None:
    variables = boards()[name]["templating"]["list"]
    assert [one["name"] for one in variables] == ["datasource", "cluster", "job", "instance"]
    for one in variables[1:]:
        assert (one["includeAll"], one["allValue"]) == (True, ".*"), "without the label, all must find it"
    for one, after in pairwise(variables[1:]):
        assert f'{one["name"]}=~"${one["name"]}"' in after["query"], "what is chosen narrows what can be chosen next"


@pytest.mark.parametrize("panel", panels(), ids=str)
def test_a_panel_can_be_read_and_its_queries_name_what_is_there(panel: Panel) -> None:
    assert panel.json["description"].endswith(".")
    if panel.json["type"] == "timeseries":
        assert panel.json["fieldConfig"]["defaults"]["unit"]
        assert all(target["legendFormat"] for target in panel.json["targets"])
    references = [target["refId"] for target in panel.json["targets"]]
    assert len(references) == len(set(references)) >= 1
    for target in [panel.json, *panel.json["targets"]]:
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for query in panel.queries:
        assert "$" not in query, "a variable that nobody replaces"
        assert names(query) - known_names() == set()


@pytest.mark.parametrize("panel", panels(), ids=str)
def test_a_panel_shows_what_is_chosen_alone(panel: Panel) -> None:
    for target in panel.json["targets"]:
        assert 'cluster=~"$cluster"' in target["expr"]
