"""`python -m deploy.chart_schema`: write what the chart's schema says of settings again, from the programs' own models.

`controller.settings`, `agent.settings` and `agent.data.settings` take every key of the configuration files, or of the
table in one, but those which the chart sets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from pidkeeper.broker_agent.config import AgentConfig
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.controller.config import ControllerConfig

SCHEMA: Final = Path(__file__).resolve().parents[1] / "helm" / "pidkeeper" / "values.schema.json"
MARK: Final = '    "settings": {"description": "What follows is written by `make chart`"},\n'

SET_BY_THE_CHART: Final[dict[type[msgspec.Struct], frozenset[str]]] = {
    ControllerConfig: frozenset(
        {
            *("node_id", "cluster_id", "data_dir", "voters", "mode", "zookeeper"),
            *("http_listen", "http_advertised", "kafka_listen", "probe_listen", "peer_listen"),
            *("security", "tls", "peer_key_file", "insecure", "token_file", "operator_token_file", "tokens_file"),
        }
    ),
    AgentConfig: frozenset(
        {
            *(
                "broker_id",
                "controllers",
                "transport",
                "http_listen",
                "probe_listen",
                "kafka_listen",
                "kafka_advertised",
            ),
            *("security", "tls", "token_file", "tokens_file", "users_file", "acls_file", "quotas_file", "data"),
        }
    ),
    DataSettings: frozenset({"store", "store_options"}),
}
"""What the chart needs to know itself, because other objects depend on it."""

_PROSE: Final = frozenset({"title", "description", "default"})


def definitions() -> dict[str, Any]:
    """A schema for the settings of each program, by the name of its model, and for the tables in them."""
    _, found = msgspec.json.schema_components(SET_BY_THE_CHART, ref_template="#/definitions/{name}")
    for model, owned in SET_BY_THE_CHART.items():
        schema = found[model.__name__]
        assert owned <= schema["properties"].keys(), f"{owned - schema['properties'].keys()} are no settings"
        schema["properties"] = {name: one for name, one in schema["properties"].items() if name not in owned}
        del schema["required"]
    used = _used(found, [model.__name__ for model in SET_BY_THE_CHART])
    return {name: _without_prose(found[name]) for name in used}


def _used(found: dict[str, Any], names: list[str]) -> list[str]:
    """Those names, and whatever their schemas refer to."""
    for name in names:
        text = json.dumps(found[name])
        names += [other for other in found if f'"#/definitions/{other}"' in text and other not in names]
    return names


def _without_prose(schema: Any) -> Any:
    """Docstrings are for who reads the code, and a default is what the program makes of a key that is not there."""
    if not isinstance(schema, dict):
        return [_without_prose(one) for one in schema] if isinstance(schema, list) else schema
    kept = {key: _without_prose(one) for key, one in schema.items() if key not in _PROSE}
    if "properties" in schema:
        # There these are names.
        kept["properties"] = {name: _without_prose(one) for name, one in schema["properties"].items()}
    return kept


def rendered() -> str:
    """The schema as it ought to be: all before the mark is written by hand."""
    head, _, _ = SCHEMA.read_text().partition(MARK)
    written = json.dumps(definitions(), indent=2).splitlines()[1:]
    return "\n".join([head + MARK + "\n".join(f"  {line}" for line in written), "}", ""])


if __name__ == "__main__":
    SCHEMA.write_text(rendered())
