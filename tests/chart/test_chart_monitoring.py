"""Scraping, rules and dashboards: what the chart brings of them is what `deploy/` has, and only where it is of use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendering import valid

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
OPERATOR = ("--api-versions", "monitoring.coreos.com/v1")


def test_service_monitor_only_where_its_kind_exists(render: Any) -> None:
    wanted = ("metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.labels.release=prom")
    assert "ServiceMonitor" not in {manifest["kind"] for manifest in render(*wanted).all()}
    with_kind = render(*wanted, options=OPERATOR)
    monitor = valid(with_kind.one("ServiceMonitor", "pidkeeper"))
    assert monitor["metadata"]["labels"]["release"] == "prom"
    wanted_labels = monitor["spec"]["selector"]["matchLabels"].items()
    services = [
        m for m in with_kind.all() if m["kind"] == "Service" and wanted_labels <= m["metadata"]["labels"].items()
    ]
    assert {s["metadata"]["name"] for s in services} == {"pidkeeper-controller-headless", "pidkeeper-agent-headless"}
    assert [endpoint["port"] for endpoint in monitor["spec"]["endpoints"]] == ["probe"]
    for endpoint in monitor["spec"]["endpoints"]:
        assert all(endpoint["port"] in {port["name"] for port in s["spec"]["ports"]} for s in services)


def test_scrape_annotations_can_be_left_out(render: Any) -> None:
    assert "prometheus.io/scrape" in render().text
    assert "prometheus.io/" not in render("metrics.scrapeAnnotations=false").text


def test_a_scraper_shows_a_certificate_where_tls_is_required(render: Any) -> None:
    secrets = ("tls.controllerSecret=c", "tls.agentSecret=a", "tls.operatorSecret=o")
    secure = ("auth.peerKeySecret=", "tls.controllers=required", "tls.agents=required", *secrets)
    wanted = (*secure, "metrics.serviceMonitor.enabled=true")
    refused = render(*wanted, options=OPERATOR)
    assert refused.returncode != 0
    assert "metrics.serviceMonitor.tlsConfig: with tls.controllers=required a scraper shows" in refused.stderr
    certificate = "metrics.serviceMonitor.tlsConfig.cert.secret.name=viewer"
    monitor = valid(render(*wanted, certificate, options=OPERATOR).one("ServiceMonitor", "pidkeeper"))
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {"cert": {"secret": {"name": "viewer"}}, "serverName": "pidkeeper.ids.svc"}
    named = render(*wanted, certificate, "metrics.serviceMonitor.tlsConfig.serverName=other", options=OPERATOR)
    (endpoint,) = named.one("ServiceMonitor", "pidkeeper")["spec"]["endpoints"]
    assert endpoint["tlsConfig"]["serverName"] == "other"
    for pods in ("controller", "agent"):
        template = render(*secure).one("StatefulSet", f"pidkeeper-{pods}")["spec"]["template"]
        assert template["metadata"]["annotations"]["prometheus.io/scheme"] == "https"


def test_the_rules_are_the_tested_ones(render: Any) -> None:
    wanted = ("metrics.rules.enabled=true", "metrics.rules.labels.release=prom")
    assert "PrometheusRule" not in {manifest["kind"] for manifest in render(*wanted).all()}
    assert "PrometheusRule" not in {manifest["kind"] for manifest in render(options=OPERATOR).all()}
    rule = valid(render(*wanted, options=OPERATOR).one("PrometheusRule", "pidkeeper"))
    assert rule["metadata"]["labels"]["release"] == "prom"
    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())


@pytest.mark.parametrize("address", ["https://docs.example.org/ids", "https://docs.example.org/ids/"])
def test_runbooks_are_where_they_are_published(render: Any, address: str) -> None:
    published = render("metrics.rules.enabled=true", f"metrics.rules.docs={address}", options=OPERATOR)
    groups = published.one("PrometheusRule", "pidkeeper")["spec"]["groups"]
    books = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(books) > 10
    assert all(book.startswith("https://docs.example.org/ids/docs/operations.md#") for book in books)


def test_the_dashboards_are_those_of_the_code(render: Any) -> None:
    assert "dashboard" not in render().text
    rendered = render("metrics.dashboards.enabled=true", "metrics.dashboards.annotations.grafana_folder=ids")
    found = [one for one in rendered.all() if "-dashboard-" in one["metadata"]["name"]]
    written = {
        f"pidkeeper-{file.name}": json.loads(file.read_text()) for file in (DEPLOY / "grafana/dashboards").iterdir()
    }
    assert {name: json.loads(text) for one in found for name, text in one["data"].items()} == written
    for one in found:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["annotations"] == {"grafana_folder": "ids"}
