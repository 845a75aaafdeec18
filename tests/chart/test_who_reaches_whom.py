"""The chart's NetworkPolicies: all that a release needs is let through, and Raft is for controllers alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.policies import Labels, lets_through

CONTROLLER_PORTS = {"http": 8080, "probe": 8081, "peer": 9090}
BY_KAFKA = {"kafka": 9093}
AGENT_PORTS = {"http": 8080, "probe": 8081, "kafka": 9092}
STRANGER: Labels = {"app": "stranger"}
CLIENT: Labels = {"app": "producer"}
CLIENTS_ALONE = (
    "networkPolicy.clients[0].podSelector.matchLabels.app=producer",
    "networkPolicy.controllerClients[0].podSelector.matchLabels.app=producer",
    "networkPolicy.scrapers[0].podSelector.matchLabels.app=prometheus",
)


def policies(rendered: Any) -> list[Any]:
    return [one for one in rendered.all() if one["kind"] == "NetworkPolicy"]


def pods(rendered: Any) -> dict[str, Labels]:
    """The labels of the pods of a release, by what they are."""
    labels = [
        one["metadata"]["labels"] if one["kind"] == "Pod" else one["spec"]["template"]["metadata"]["labels"]
        for one in rendered.all()
        if one["kind"] in {"StatefulSet", "Job", "Pod"}
    ]
    return {one["app.kubernetes.io/component"]: one for one in labels}


@pytest.mark.parametrize("values", [(), CLIENTS_ALONE], ids=["default", "narrow"])
def test_a_release_reaches_itself(render: Any, values: tuple[str, ...]) -> None:
    rendered = render(*values)
    rules, mine = policies(rendered), pods(rendered)
    assert mine.keys() == {"controller", "agent", "founding", "test"}
    assert lets_through(rules, mine["controller"], mine["controller"], CONTROLLER_PORTS["peer"])
    for source in mine.values():
        assert lets_through(rules, source, mine["controller"], CONTROLLER_PORTS["http"])
        assert lets_through(rules, source, mine["agent"], AGENT_PORTS["http"])


@pytest.mark.parametrize("values", [(), CLIENTS_ALONE], ids=["default", "narrow"])
def test_raft_is_for_controllers_alone(render: Any, values: tuple[str, ...]) -> None:
    rendered = render(*values)
    rules, mine = policies(rendered), pods(rendered)
    others = [mine["agent"], mine["founding"], mine["test"], STRANGER, CLIENT]
    # The same component of another release in the namespace is a stranger, too.
    others.append({**mine["controller"], "app.kubernetes.io/instance": "another"})
    for source in others:
        assert not lets_through(rules, source, mine["controller"], CONTROLLER_PORTS["peer"])


def test_by_default_everybody_asks_agents_and_nobody_controllers(render: Any) -> None:
    rendered = render()
    rules, mine = policies(rendered), pods(rendered)
    assert all(lets_through(rules, STRANGER, mine["agent"], port) for port in AGENT_PORTS.values())
    assert lets_through(rules, STRANGER, mine["controller"], CONTROLLER_PORTS["probe"])
    assert not lets_through(rules, STRANGER, mine["controller"], CONTROLLER_PORTS["http"])


def test_named_clients_and_scrapers_are_let_in_and_nobody_else(render: Any) -> None:
    rendered = render(*CLIENTS_ALONE)
    rules, mine = policies(rendered), pods(rendered)
    for target, ports in ((mine["agent"], AGENT_PORTS), (mine["controller"], CONTROLLER_PORTS)):
        assert lets_through(rules, CLIENT, target, ports["http"])
        assert not lets_through(rules, STRANGER, target, ports["http"])
        assert lets_through(rules, {"app": "prometheus"}, target, ports["probe"])
        assert not lets_through(rules, CLIENT, target, ports["probe"])
    assert lets_through(rules, CLIENT, mine["agent"], AGENT_PORTS["kafka"])
    assert not lets_through(rules, STRANGER, mine["agent"], AGENT_PORTS["kafka"])


def test_controllers_are_asked_in_kafkas_protocol_by_whoever_may_ask_over_http(render: Any) -> None:
    rendered = render("controller.kafka=true", *CLIENTS_ALONE)
    rules, mine = policies(rendered), pods(rendered)
    for source in (*mine.values(), CLIENT):
        assert lets_through(rules, source, mine["controller"], BY_KAFKA["kafka"])
    assert not lets_through(rules, STRANGER, mine["controller"], BY_KAFKA["kafka"])
    assert not lets_through(policies(render()), mine["agent"], mine["controller"], BY_KAFKA["kafka"])


@pytest.mark.parametrize("by_kafka", [False, True])
def test_every_port_of_a_pod_is_one_that_a_policy_names(render: Any, by_kafka: bool) -> None:
    """A port that is added must be thought of: a policy that does not name it closes it."""
    rendered = render(f"controller.kafka={str(by_kafka).lower()}")
    controller = CONTROLLER_PORTS | (BY_KAFKA if by_kafka else {})
    for name, wanted in (("controller", controller), ("agent", AGENT_PORTS)):
        (container,) = rendered.one("StatefulSet", f"pidkeeper-{name}")["spec"]["template"]["spec"]["containers"]
        assert {port["name"]: port["containerPort"] for port in container["ports"]} == wanted
        (policy,) = [
            one["spec"]
            for one in policies(rendered)
            if one["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/component") == name
        ]
        assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(wanted.values())


def test_pods_reach_names_and_zookeeper_and_what_is_added(render: Any) -> None:
    def egress(*values: str) -> list[Any]:
        (spec,) = [one["spec"] for one in policies(render(*values)) if one["spec"]["policyTypes"] == ["Egress"]]
        found: list[Any] = spec["egress"]
        return found

    names = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    assert egress()[1:] == [names]
    connect = "controller.zookeeper.connect=z-1:2182\\,z-2\\,[::1]:2182/kafka"
    assert egress(connect)[1:] == [names, {"ports": [{"port": 2182}, {"port": 2181}]}]
    more = ("networkPolicy.extraEgress[0].ports[0].port=4318",)
    assert egress(*more)[1:] == [names, {"ports": [{"port": 4318}]}]


def test_policies_can_be_left_out(render: Any) -> None:
    assert policies(render("networkPolicy.enabled=false")) == []
