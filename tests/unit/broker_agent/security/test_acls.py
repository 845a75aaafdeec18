"""Rules for transactional ids, as Kafka's authorizer takes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.security.acls import ALLOW, DENY, EVERYBODY, Acl, AclList, allows, read_acls
from pidkeeper.broker_agent.security.resources import (
    GROUP,
    GROUP_DELETE,
    GROUP_DESCRIBE,
    GROUP_READ,
    RESOURCES,
    TOPIC,
    TOPIC_CREATE,
    TOPIC_DELETE,
    TOPIC_DESCRIBE,
    TOPIC_READ,
    TOPIC_WRITE,
    TRANSACTIONAL_ID,
)
from pidkeeper.service.settings import SettingsError

ACLS = [
    Acl(ALLOW, "alice", TRANSACTIONAL_ID, "shop-*"),
    Acl(DENY, "alice", TRANSACTIONAL_ID, "shop-secret"),
    Acl(ALLOW, EVERYBODY, TRANSACTIONAL_ID, "public"),
    Acl(DENY, EVERYBODY, TRANSACTIONAL_ID, "closed*"),
    Acl(ALLOW, "root", TRANSACTIONAL_ID, "*"),
]


@pytest.mark.parametrize(
    ("principal", "name", "allowed"),
    [
        ("alice", "shop-1", True),
        ("alice", "shop-", True),
        ("alice", "shop", False),
        ("alice", "Shop-1", False),
        ("alice", "shop-secret", False),
        ("alice", "shop-secret2", True),
        ("alice", "public", True),
        ("bob", "public", True),
        ("bob", "public2", False),
        ("bob", "shop-1", False),
        ("root", "anything", True),
        ("root", "closed-1", False),
        ("*", "shop-1", False),
        ("", "public", True),
    ],
)
def test_deny_goes_before_allow_and_nothing_is_allowed_by_itself(principal: str, name: str, allowed: bool) -> None:
    assert allows(ACLS, principal, TRANSACTIONAL_ID, name) is allowed
    assert allows(list(reversed(ACLS)), principal, TRANSACTIONAL_ID, name) is allowed


TOPICS = [
    Acl(ALLOW, "alice", TOPIC_READ, "in*"),
    Acl(ALLOW, "alice", TOPIC, "own"),
    Acl(DENY, "alice", TOPIC_DELETE, "own"),
    Acl(ALLOW, "alice", TOPIC_WRITE, "hidden"),
    Acl(DENY, "alice", TOPIC_DESCRIBE, "hidden"),
    Acl(ALLOW, "alice", TOPIC_CREATE, "new"),
]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("in-1", {TOPIC_READ, TOPIC_DESCRIBE}),
        ("own", {TOPIC_READ, TOPIC_WRITE, TOPIC_CREATE, TOPIC_DESCRIBE}),
        ("hidden", {TOPIC_WRITE}),
        ("new", {TOPIC_CREATE}),
        ("other", set()),
    ],
)
def test_what_may_be_done_to_a_topic(name: str, allowed: set[str]) -> None:
    operations = set(RESOURCES) - {TRANSACTIONAL_ID, TOPIC, GROUP}
    assert {one for one in operations if allows(TOPICS, "alice", one, name)} == allowed
    assert not allows(TOPICS, "alice", TRANSACTIONAL_ID, name)
    assert not allows(ACLS, "root", TOPIC_READ, name), "a rule for transactional ids is none for topics"


GROUPS = [
    Acl(ALLOW, "alice", GROUP_READ, "in*"),
    Acl(ALLOW, "alice", GROUP, "own"),
    Acl(DENY, "alice", GROUP_DELETE, "own"),
    Acl(ALLOW, "alice", GROUP_DELETE, "hidden"),
    Acl(DENY, "alice", GROUP_DESCRIBE, "hidden"),
    Acl(ALLOW, "alice", TOPIC, "*"),
]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("in-1", {GROUP_READ, GROUP_DESCRIBE}),
        ("own", {GROUP_READ, GROUP_DESCRIBE}),
        ("hidden", {GROUP_DELETE}),
        ("other", set()),
    ],
)
def test_what_may_be_done_to_a_group(name: str, allowed: set[str]) -> None:
    operations = {GROUP_READ, GROUP_DELETE, GROUP_DESCRIBE}
    assert {one for one in operations if allows(GROUPS, "alice", one, name)} == allowed


printable = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=20)


@given(st.lists(st.builds(Acl, st.sampled_from([ALLOW, DENY]), printable, st.sampled_from(RESOURCES), printable)))
def test_a_rule_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, acls: list[Acl]) -> None:
    path = tmp_path_factory.getbasetemp() / "acls"
    path.write_text("# rules\n" + "".join(f"{acl.line}\n" for acl in acls))
    assert read_acls(str(path)) == acls


def test_new_rules_hold_for_who_is_there_already(tmp_path: Path) -> None:
    path = tmp_path / "acls"
    path.write_text("allow alice transactional-id a\n")
    acls = AclList(str(path))
    may_use = acls.may_use("alice")
    assert (may_use("a"), may_use("b")) == (True, False)
    path.write_text("allow alice transactional-id b # since then\n")
    os.utime(path, ns=(1, 1))
    assert may_use("b"), "before a refusal the file is looked at again"
    assert not may_use("a")
    path.write_text("")
    acls.refresh()
    assert not may_use("b")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("allow alice transactional-id", "must be allow"),
        ("allow alice transactional-id a b", "must be allow"),
        ("allow '' transactional-id a", "must be allow"),
        ("permit alice transactional-id a", "not with 'permit'"),
        ("allow alice cluster a", "'cluster' is no resource"),
        ("allow 'alice transactional-id a", "No closing quotation"),
    ],
)
def test_a_bad_rule_is_named_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "acls"
    path.write_text(f"\n{text}\n")
    with pytest.raises(SettingsError, match=reason) as refused:
        AclList(str(path))
    assert f"{path}, line 2" in str(refused.value)
