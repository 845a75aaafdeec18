"""What a set of NetworkPolicies lets through, by the rules of networking.k8s.io/v1, for pods of one namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Labels = Mapping[str, str]


def lets_through(policies: Sequence[Any], source: Labels, target: Labels, port: int) -> bool:
    """Whether TCP from a pod with labels `source` reaches `port` of one with labels `target`.

    Each side must allow it; a side that no policy selects allows everything.
    """
    return _allowed(policies, "Egress", source, target, port) and _allowed(policies, "Ingress", target, source, port)


def _allowed(policies: Sequence[Any], direction: str, mine: Labels, other: Labels, port: int) -> bool:
    specs = [one["spec"] for one in policies if direction in one["spec"]["policyTypes"]]
    specs = [one for one in specs if _selects(one["podSelector"], mine)]
    return not specs or any(_matches(rule, other, port) for one in specs for rule in one.get(direction.lower(), []))


def _matches(rule: Any, other: Labels, port: int) -> bool:
    ports = rule.get("ports")
    if ports is not None and (port, "TCP") not in {(one["port"], one.get("protocol", "TCP")) for one in ports}:
        return False
    peers = rule.get("from", rule.get("to"))
    return peers is None or any("podSelector" in peer and _selects(peer["podSelector"], other) for peer in peers)


def _selects(selector: Any, labels: Labels) -> bool:
    assert selector.keys() <= {"matchLabels"}, "only these are understood here"
    wanted: Labels = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()
