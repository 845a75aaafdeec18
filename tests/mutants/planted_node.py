"""Bugs in what a leader does beside deciding, and in how a member is put together."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, insert_before, replace
from tests.mutants.planted import Planted

NODE: Final = "controller/node"
MIGRATION: Final = "controller/migration"
_LEADERSHIP: Final = ("tests/unit/controller/node/test_leadership.py",)
_SKIPPED: Final = "KAFKA-14274 and many others: a periodic task that is not run any more, and nobody misses it at once"

NODE_BUGS: Final = (
    Planted(
        "first-block-of-an-answer-told-twice",
        "no ID twice",
        "KAFKA-14694's class: what is asked for at once is mixed up",
        (replace("controller/api", "_as_one", "granted[1:]", "granted"),),
    ),
    Planted(
        "further-blocks-cost-no-token",
        "a broker over its rate waits",
        "a quota of requests, where one request brings many blocks",
        (replace("controller/api", "Operations._submit_further", "self._gate.allocations.admit(_, _)", "None"),),
        ("tests/unit/controller/api/test_operations.py",),
        unseen="its quotas are out of the way",
    ),
    Planted(
        "silent-brokers-never-fenced",
        "a broker that is silent is fenced",
        _SKIPPED,
        (delete(NODE, "Leadership.tick", "self._fence_silent_brokers()"),),
        _LEADERSHIP,
    ),
    Planted(
        "metadata-version-never-raised",
        "the metadata version rises when all members and agents know the next",
        _SKIPPED,
        (delete(NODE, "Leadership.tick", "self.version_duty.tick(_)"),),
        _LEADERSHIP,
    ),
    Planted(
        "metadata-version-raised-over-agents",
        "no version is in force that an agent does not know which clients are told of",
        _SKIPPED,
        (replace(NODE, "VersionDuty.tick", "min([readable, *self._agents().values()])", "readable"),),
        ("tests/unit/controller/node/test_version_duty.py",),
    ),
    Planted(
        "transactions-left-to-themselves",
        "a transaction whose time is up is aborted",
        _SKIPPED,
        (delete(NODE, "Leadership.tick", "self.transactions.tick(_, _)"),),
        ("tests/unit/controller/node/test_member_transactions.py",),
    ),
    Planted(
        "migration-left-to-itself",
        "a migration that was begun goes on",
        _SKIPPED,
        (delete(NODE, "Leadership.tick", "self.migration.tick()"),),
        ("tests/migration/test_migration.py",),
    ),
    Planted(
        "request-taken-while-stopping",
        "a member that stops takes no request",
        "etcd #14027: requests are taken while the server stops, and are never answered",
        (replace(NODE, "Leadership.serving", "not self.closed", "True"),),
        _LEADERSHIP,
    ),
    Planted(
        "leader-side-not-closed-on-a-stop",
        "a member that stops takes no request",
        "the assembly forgets one of its parts",
        (delete(NODE, "ClusterMember.hand_over", "self.leadership.close()"),),
    ),
    Planted(
        "session-counted-before-its-request-was-taken",
        "a broker that is silent is fenced",
        "KIP-631: a heartbeat counts with the leader that took it",
        (
            insert_before(
                NODE,
                "Leadership.submit",
                "if not self.serving():",
                "if isinstance(request, requests.SignOfLife):\n    self.sessions.heard(request.broker_id, self.ticks)",
            ),
        ),
        _LEADERSHIP,
    ),
    Planted(
        "session-ended-by-what-is-only-asked-for",
        "a broker that is silent is fenced",
        "this project: a late request to unregister an epoch that was replaced, in one of 1,150 seeds",
        (
            insert_before(
                NODE,
                "Leadership.submit",
                "if isinstance(request, requests.SignOfLife):\n    self.sessions.heard(request.broker_id, self.ticks)",
                "if isinstance(request, requests.UnregisterBroker):\n"
                "    self.sessions._seen.pop(request.broker_id, None)",
            ),
        ),
        _LEADERSHIP,
    ),
    Planted(
        "unfenced-without-a-session",
        "a broker that is silent is fenced",
        "this project: a disk so slow that the session is over before the record that ends the fence is committed",
        (delete(NODE, "Leadership.applied", "self.sessions.applied(records, self.ticks)"),),
        _LEADERSHIP,
    ),
    Planted(
        "deposed-leader-keeps-what-waits",
        "an answer rests on its own entry",
        "the driver tells the leader's side nothing of a lost leadership",
        (
            delete(
                NODE,
                "Leadership.observe",
                "self._proposals.deposed()\nself.decider.fail(_)\nself.log_watch.deposed()\nself.migration.deposed()",
            ),
        ),
        _LEADERSHIP,
    ),
    Planted(
        "step-goes-on-in-another-phase",
        "the znode is sealed in FINALIZING alone",
        "seed 485844904739: a rollback was decided in the batch of a step that was to seal",
        (replace(MIGRATION, "MigrationSteps._answered", "self._machine.migration.phase is phase", "True"),),
        ("tests/unit/controller/migration/test_steps.py",),
    ),
    Planted(
        "floor-claimed-before-it-is-checked",
        "one call does not burn the ID space",
        "a check behind what cannot be undone",
        (delete(MIGRATION, "Migration.claim_for", "check_floor(_, _, _, forced=_)"),),
        ("tests/unit/controller/migration/test_member_side.py",),
    ),
    Planted(
        "force-for-everybody",
        "one call does not burn the ID space",
        "a dangerous flag that protects from nobody",
        (replace("controller/api", "_check_force", "Access.OVERRIDE not in _", "False"),),
        ("tests/unit/controller/api/test_app.py",),
    ),
    Planted(
        "forgetting-stops-after-its-first-batch",
        "idle transactional ids make room",
        "a window that is never opened again",
        (delete(NODE, "TransactionDuties.applied", "self._forgetting.pop(_, None)"),),
        ("tests/unit/controller/node/test_transaction_duties.py",),
    ),
    Planted(
        "full-disk-untold",
        "a full disk is told before the member ends",
        "a failure that is logged and nowhere else to be seen",
        (replace(NODE, "StorageWorker._prepare_segment", "self.no_room is None", "False"),),
        ("tests/unit/controller/node/test_storage_worker.py",),
    ),
)
