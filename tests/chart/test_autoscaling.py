"""As many agents as the load takes: the chart counts none of them itself then, and knows how many there may be."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.rendering import Render, valid

KEDA = ("--api-versions", "keda.sh/v1alpha1")
CERT_MANAGER = ("--api-versions", "cert-manager.io/v1")
BY_CPU = ("agent.autoscaling.by=cpu",)
BY_CLAIMS = ("agent.autoscaling.by=claims", "agent.autoscaling.prometheus=http://prometheus:9090")
TARGET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "pidkeeper-agent"}


def behavior_of(scaler: dict[str, Any]) -> Any:
    if scaler["kind"] == "HorizontalPodAutoscaler":
        return scaler["spec"]["behavior"]
    return scaler["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]


def test_by_default_the_values_say_how_many_agents_there_are(render: Render) -> None:
    assert render("agent.replicas=4").one("StatefulSet", "pidkeeper-agent")["spec"]["replicas"] == 4
    assert not {"HorizontalPodAutoscaler", "ScaledObject"} & {one["kind"] for one in render(options=KEDA).all()}


@pytest.mark.parametrize("by", [BY_CPU, BY_CLAIMS], ids=["cpu", "claims"])
def test_an_upgrade_takes_nothing_back_of_what_was_scaled(render: Render, by: tuple[str, ...]) -> None:
    rendered = render(*by, "agent.replicas=4", options=KEDA)
    assert "replicas" not in rendered.one("StatefulSet", "pidkeeper-agent")["spec"]
    (scaler,) = [one for one in rendered.all() if one["kind"] in {"HorizontalPodAutoscaler", "ScaledObject"}]
    assert scaler["spec"]["scaleTargetRef"] == TARGET
    (down,) = behavior_of(scaler)["scaleDown"]["policies"]
    assert (down["type"], down["value"]) == ("Pods", 1)


def test_by_cpu_it_is_the_agents_own_container_that_counts(render: Render) -> None:
    spec = render(*BY_CPU, "agent.autoscaling.maxReplicas=7").one("HorizontalPodAutoscaler", "pidkeeper-agent")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 7)
    (metric,) = spec["metrics"]
    assert metric["containerResource"]["container"] == "agent"
    assert metric["containerResource"]["target"] == {"type": "AverageValue", "averageValue": "600m"}


def test_by_claims_prometheus_is_asked_for_claims_and_for_what_is_missing(render: Render) -> None:
    scaled = valid(render(*BY_CLAIMS, options=KEDA).one("ScaledObject", "pidkeeper-agent"))
    claims, missing = scaled["spec"]["triggers"]
    series = 'namespace="ids",pod=~"pidkeeper-agent-[0-9]+"'
    assert claims["metadata"] == {
        "serverAddress": "http://prometheus:9090",
        "query": f"sum(rate(pidkeeper_agent_claims_total{{{series}}}[2m]))",
        "threshold": "50000",
    }
    assert missing["metadata"]["query"] == (
        f"100 * (1 - min(pidkeeper_agent_reserve_ids{{{series}}} / pidkeeper_agent_reserve_target_ids{{{series}}}))"
    )
    assert (claims["metricType"], missing["metricType"]) == ("AverageValue", "Value")
    # Builds of KEDA before 2.18 refuse one beside a metric of type Value.
    assert "fallback" not in scaled["spec"]


def test_without_keda_it_is_refused_for_nobody_would_count_agents(render: Render) -> None:
    refused = render(*BY_CLAIMS)
    assert refused.returncode != 0
    assert "does not know keda.sh/v1alpha1: install KEDA, or scale by cpu" in refused.stderr


def test_fewest_must_not_be_more_than_most(render: Render) -> None:
    refused = render(*BY_CPU, "agent.autoscaling.minReplicas=11")
    assert refused.returncode != 0
    assert "minReplicas 11 is more than maxReplicas 10" in refused.stderr


def test_each_agent_that_may_come_has_a_name_in_the_certificate_and_a_budget(render: Render) -> None:
    secure = (
        "auth.peerKeySecret=",
        "tls.controllers=required",
        "tls.agents=required",
        "tls.certManager.issuer.name=ca",
    )
    rendered = render(*BY_CPU, *secure, "agent.firstBrokerId=5", "agent.replicas=0", options=CERT_MANAGER)
    uris = rendered.one("Certificate", "pidkeeper-agent")["spec"]["uris"]
    assert [uri.rpartition("/")[2] for uri in uris] == [str(number) for number in range(5, 15)]
    assert rendered.one("PodDisruptionBudget", "pidkeeper-agent")["spec"]["maxUnavailable"] == 1
