"""The client behind the commands, against real HTTP servers that answer as the test says."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from pidkeeper.cli.controllers import AGENT_STATUS, AN_AGENT, DEFAULT_CONTROLLER, Controllers
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.main import cli
from pidkeeper.cli.quorum import describe_best
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import (
    AllocatedBlock,
    AllocatedBlocksPage,
    AllocateProducerIdsResponse,
    Problem,
    QuorumDescription,
    RaiseFloorRequest,
    RaiseFloorResponse,
    RegisterBrokerResponse,
    VoterStatus,
)

GOOD = (200, RaiseFloorResponse(1000, True))
NOWHERE = "http://127.0.0.1:1"


class Server:
    """Gives its answers one after the other, and the last one for ever."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, bytes, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.asked.append((self.command, self.path, body, self.headers.get("Authorization")))
                status, value = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                data = value if isinstance(value, bytes) else msgspec.json.encode(value)
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = handle_any  # noqa: N815 - the names that http.server calls

            def log_message(self, *args: object) -> None:
                """Stay quiet."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def servers() -> Iterator[type[Server]]:
    made: list[Server] = []

    class Tracked(Server):
        def __init__(self, *answers: tuple[int, Any]) -> None:
            super().__init__(*answers)
            made.append(self)

    yield Tracked
    for server in made:
        with contextlib.suppress(OSError):
            server.close()


def problem(code: ErrorCode, leader: str | None = None) -> tuple[int, Problem]:
    return code.http_status, Problem(
        "about:blank",
        "t",
        code.http_status,
        f"detail of {code.name}",
        code.name,
        code.kafka_code,
        code.retriable,
        leader,
    )


def ask(urls: str, timeout: float = 10.0) -> RaiseFloorResponse:
    members = Controllers(urls, None, timeout)
    return members.ask(RaiseFloorResponse, "POST", "/v1/producer-ids/floor", RaiseFloorRequest(5))


def test_an_answer(servers: type[Server]) -> None:
    server = servers(GOOD)
    assert ask(server.url + "/") == RaiseFloorResponse(1000, True)
    assert server.asked == [("POST", "/v1/producer-ids/floor", b'{"at_least":5}', None)]


def test_a_follower_sends_to_the_leader(servers: type[Server]) -> None:
    leader = servers(GOOD)
    follower = servers(problem(ErrorCode.NOT_CONTROLLER, leader.url))
    assert ask(follower.url).raised
    assert (len(follower.asked), len(leader.asked)) == (1, 1)


def test_a_member_that_is_down_is_passed_over(servers: type[Server]) -> None:
    server = servers(GOOD)
    assert ask(f"{NOWHERE}, {server.url},").raised


def test_an_election_is_waited_for(servers: type[Server]) -> None:
    server = servers(problem(ErrorCode.NOT_CONTROLLER), (503, b"<html>starting</html>"), GOOD)
    assert ask(server.url).raised
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (ErrorCode.DUPLICATE_BROKER_REGISTRATION, ExitCode.REFUSED),
        (ErrorCode.INVALID_REQUEST, ExitCode.REFUSED),
        (ErrorCode.PRODUCER_IDS_EXHAUSTED, ExitCode.REFUSED),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ExitCode.NOT_AUTHORISED),
    ],
)
def test_a_refusal_is_final(servers: type[Server], code: ErrorCode, exit_code: ExitCode) -> None:
    server = servers(problem(code))
    with pytest.raises(CommandError, match=f"detail of {code.name}") as refused:
        ask(server.url)
    assert refused.value.exit_code == exit_code
    assert len(server.asked) == 1


def test_a_missing_token_is_told_as_such(servers: type[Server]) -> None:
    server = servers((401, b"who are you?"))
    with pytest.raises(CommandError, match="who are you") as refused:
        ask(server.url)
    assert refused.value.exit_code == ExitCode.NOT_AUTHORISED


def test_nobody_answers() -> None:
    with pytest.raises(CommandError, match=f"no answer within 0.05 s; last: {NOWHERE}: .*refused") as refused:
        ask(NOWHERE, timeout=0.05)
    assert refused.value.exit_code == ExitCode.UNREACHABLE


def test_whoever_never_becomes_leader_is_quoted(servers: type[Server]) -> None:
    server = servers(problem(ErrorCode.NOT_CONTROLLER))
    with pytest.raises(CommandError, match=r"last: .*NOT_CONTROLLER: detail of NOT_CONTROLLER") as refused:
        ask(server.url, timeout=0.2)
    assert refused.value.exit_code == ExitCode.UNREACHABLE


@pytest.mark.parametrize("answer", [b"<html>hello</html>", b"{}", b'{"next_producer_id":"x","raised":true}', b""])
def test_something_else_at_that_address_is_told_in_one_line(servers: type[Server], answer: bytes) -> None:
    server = servers((200, answer))
    with pytest.raises(CommandError, match=f"{server.url} does not answer like a controller: .*check the address"):
        ask(server.url)
    with pytest.raises(CommandError, match="does not answer like a controller"):
        Controllers(server.url, None, 1.0).ask_each(RaiseFloorResponse, "/v1/quorum")


def test_each_member_is_asked_once(servers: type[Server]) -> None:
    good, refusing = servers(GOOD), servers(problem(ErrorCode.RESOURCE_NOT_FOUND))
    members = Controllers(f"{good.url},{refusing.url},{NOWHERE}", None, 1.0)
    assert members.ask_each(RaiseFloorResponse, "/v1/x") == {good.url: GOOD[1], refusing.url: None, NOWHERE: None}
    assert len(good.asked) == 1
    assert [path for _, path, _, _ in refusing.asked] == ["/v1/x", AGENT_STATUS], "and whether it is an agent's address"


def test_why_nobody_may_be_asked_is_told(servers: type[Server]) -> None:
    refusing = servers(*[problem(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)] * 3)
    members = Controllers(f"{NOWHERE},{refusing.url}", None, 1.0)
    with pytest.raises(CommandError, match=f"{refusing.url}: detail of CLUSTER_AUTHORIZATION_FAILED") as refused:
        members.ask_each(RaiseFloorResponse, "/v1/x")
    assert refused.value.exit_code == ExitCode.NOT_AUTHORISED
    answering = servers(GOOD)
    some = Controllers(f"{refusing.url},{answering.url}", None, 1.0)
    assert some.ask_each(RaiseFloorResponse, "/v1/x") == {refusing.url: None, answering.url: GOOD[1]}
    nobody = Controllers(NOWHERE, None, 1.0)
    with pytest.raises(CommandError, match=f"no controller answers: {NOWHERE}: .*refused") as unreachable:
        describe_best(nobody)
    assert unreachable.value.exit_code == ExitCode.UNREACHABLE


def description(node_id: int, leads: bool = False, **fields: Any) -> tuple[int, QuorumDescription]:
    found = {"term": 2, "leader_id": 1, "leader_http": None, "commit_index": 10, "applied_index": 10} | fields
    role = "leader" if leads else "follower"
    rest: dict[str, Any] = {"log_end_index": 10, "snapshot_index": 0, "next_producer_id": 0, "block_size": 1000}
    rest |= {"voters": [], "failure_tolerance": 1, "healthy": True, "reasons": []}
    return 200, QuorumDescription(cluster_id="c", node_id=node_id, role=role, **found, **rest)


def test_the_leader_is_asked_first(servers: type[Server]) -> None:
    """A deposed one still says that it leads, in an older term."""
    ahead, deposed = servers(description(2, commit_index=12)), servers(description(3, leads=True, term=1))
    leader = servers(description(1, leads=True), GOOD)
    members = Controllers(f"{NOWHERE},{ahead.url},{deposed.url},{leader.url}", None, 1.0)
    assert [url for url, _ in members.described()] == [leader.url, ahead.url, deposed.url]
    leader.answers[:0] = [description(1, leads=True)]
    ordered = members.leader_first()
    assert ordered.urls == [leader.url, NOWHERE, ahead.url, deposed.url]
    assert ordered.ask(RaiseFloorResponse, "GET", "/x") == GOOD[1]
    assert members.urls == [NOWHERE, ahead.url, deposed.url, leader.url]


def test_a_leader_that_was_not_named_is_asked_first_too(servers: type[Server]) -> None:
    leader = servers(GOOD)
    follower = servers(description(2, leader_http=leader.url), problem(ErrorCode.NOT_CONTROLLER))
    assert Controllers(follower.url, None, 1.0).leader_first().urls == [leader.url, follower.url]
    alone = servers(description(2))
    assert Controllers(f"{NOWHERE},{alone.url}", None, 1.0).leader_first().urls == [alone.url, NOWHERE]
    assert Controllers(NOWHERE, None, 1.0).leader_first().urls == [NOWHERE]


def test_blocks_are_listed_as_the_leader_knows_them(servers: type[Server]) -> None:
    lags = servers(description(2), (200, AllocatedBlocksPage([], None, 0)))
    block = AllocatedBlock(0, 999, 7, 3, 9, 1)
    leader = servers(description(1, leads=True), (200, AllocatedBlocksPage([block], None, 0)))
    ran = CliRunner().invoke(cli, ["ids", "list", "-c", f"{lags.url},{leader.url}", "-o", "json"])
    assert [one["first"] for one in json.loads(ran.stdout)["blocks"]] == [0], ran.output


def test_the_token_is_sent(servers: type[Server], tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret of the day\n")
    server = servers(GOOD)
    Controllers(server.url, None, 1.0, token).ask(RaiseFloorResponse, "POST", "/x")
    assert server.asked[0][3] == "Bearer secret of the day"


def test_the_members_of_a_local_cluster(tmp_path: Path) -> None:
    urls = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"controllers": [{"http": url, "id": 1} for url in urls], "agents": []}))
    assert Controllers(None, tmp_path, 1.0).urls == urls
    assert Controllers("http://ignored:1", file, 1.0).urls == urls


WRONG = [
    '{"controllers": [{}]}',
    '{"controllers": 5}',
    '{"controllers": []}',
    '{"controllers": [{"id": 1, "http": 5}]}',
    '{"controllers": [{"id": 1, "http": "127.0.0.1:80"}]}',
    "[" * 100_000,
]


@pytest.mark.parametrize("content", [None, "", "[]", "{}", *WRONG])
def test_what_is_no_cluster_json(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(click.BadParameter, match=r"is not a cluster\.json"):
        Controllers(None, tmp_path, 1.0)


def test_the_default() -> None:
    assert Controllers(None, None, 1.0).urls == [DEFAULT_CONTROLLER]


@pytest.mark.parametrize(
    "urls",
    ["ftp://x:1", "127.0.0.1:80", "http://", "http://host:port", "http://host:99999", "http://a:1,ftp://b", " , ,"],
)
def test_what_is_no_base_url(urls: str) -> None:
    with pytest.raises(click.BadParameter, match="base URL like"):
        Controllers(urls, None, 1.0)


NAMELESS = "http://nobody.invalid:8080"
AGENTS_ADDRESS = [problem(ErrorCode.RESOURCE_NOT_FOUND), (200, {"broker_id": 1})]


@pytest.mark.parametrize("command", [("quorum", "describe"), ("health",), ("ids", "list"), ("ids", "owner", "5")])
def test_an_agents_address_is_told_as_such(servers: type[Server], command: tuple[str, ...]) -> None:
    agent = servers(*AGENTS_ADDRESS * 4)
    ran = CliRunner().invoke(cli, [*command, "-c", agent.url, "--timeout", "30"])
    assert ran.exit_code == ExitCode.NOT_AUTHORISED
    assert f"{agent.url}: {AN_AGENT}" in ran.output


def test_an_agents_address_among_those_of_controllers_is_passed_over(servers: type[Server]) -> None:
    agent, good = servers(*AGENTS_ADDRESS), servers(GOOD)
    assert Controllers(f"{agent.url},{good.url}", None, 1.0).ask(RaiseFloorResponse, "POST", "/x") == GOOD[1]


def test_a_controller_that_finds_nothing_is_not_called_an_agent(servers: type[Server]) -> None:
    controller = servers(problem(ErrorCode.RESOURCE_NOT_FOUND))
    with pytest.raises(CommandError, match="detail of RESOURCE_NOT_FOUND") as refused:
        Controllers(controller.url, None, 1.0).ask(RaiseFloorResponse, "GET", "/x")
    assert refused.value.exit_code == ExitCode.REFUSED


@pytest.mark.parametrize("command", [("health",), ("ids", "list"), ("ids", "raise-floor", "5", "--yes")])
def test_a_wrong_token_is_told_as_such(servers: type[Server], tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "token").write_text("wrong")
    controller = servers(problem(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    ran = CliRunner().invoke(cli, [*command, "-c", controller.url, "--token-file", str(tmp_path / "token")])
    assert ran.exit_code == ExitCode.NOT_AUTHORISED
    assert "detail of CLUSTER_AUTHORIZATION_FAILED" in ran.output
    assert "wrong" not in ran.output


@pytest.mark.parametrize("command", [("health",), ("ids", "list")])
def test_a_name_that_does_not_resolve_is_told_as_such(command: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(cli, [*command, "-c", NAMELESS, "--timeout", "0.2"])
    assert ran.exit_code == ExitCode.NOT_AUTHORISED
    assert f"{NAMELESS}: its name does not resolve" in ran.output


@pytest.mark.parametrize("command", [("health",), ("ids", "list")])
@pytest.mark.parametrize("first", [True, False])
def test_where_one_address_may_be_a_controllers_it_is_for_that_one_to_answer(
    servers: type[Server], command: tuple[str, ...], first: bool
) -> None:
    agent = servers(*AGENTS_ADDRESS * 4)
    misnamed = [NAMELESS, agent.url]
    urls = ",".join([NOWHERE, *misnamed] if first else [*misnamed, NOWHERE])
    ran = CliRunner().invoke(cli, [*command, "-c", urls, "--timeout", "0.3"])
    assert ran.exit_code == ExitCode.UNREACHABLE, ran.output
    assert CliRunner().invoke(cli, [*command, "-c", ",".join(misnamed), "--timeout", "0.3"]).exit_code == 4


@pytest.mark.parametrize("option", ["--certificate-file", "--key-file"])
def test_a_certificate_and_its_key_are_named_together(tmp_path: Path, option: str) -> None:
    (tmp_path / "file").touch()
    ran = CliRunner().invoke(cli, ["health", option, str(tmp_path / "file")])
    assert ran.exit_code == ExitCode.USAGE
    assert "must be given together" in ran.output


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff\xfe", b"a\0b"])
def test_what_is_no_token(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(click.BadParameter, match="does not hold one token in one line"):
        Controllers(NOWHERE, None, 1.0, tmp_path / "token")


@pytest.mark.parametrize("second", [0, 999, 1000])
def test_blocks_that_do_not_ascend_end_the_command(servers: type[Server], second: int) -> None:
    """`helm test` allocates two: what it must notice is a quorum that hands out IDs again."""
    blocks = [(200, AllocateProducerIdsResponse(0, first, 1000)) for first in (0, second)]
    server = servers((200, RegisterBrokerResponse(1, "c")), *blocks)
    asked = ["ids", "allocate", "--broker", "9", "--blocks", "2", "--controllers", server.url]
    done = CliRunner().invoke(cli, asked)
    if second == 1000:
        assert done.exit_code == ExitCode.GOOD, done.output
    else:
        assert done.exit_code == ExitCode.UNHEALTHY
        assert f"IDs {second} to {second + 999} were given out after 0 to 999" in done.output


def of_voters(*ids: int, commit_index: int = 9, leader: int | None = 1) -> tuple[int, QuorumDescription]:
    status, described = description(1, leads=leader == 1, commit_index=commit_index, leader_id=leader)
    voters = [VoterStatus(one, f"http://c{one}:8080") for one in ids]
    return status, msgspec.structs.replace(described, voters=voters)


@pytest.mark.parametrize(
    ("described", "among", "code", "says"),
    [
        (of_voters(1, 2, 3), "1,2,3", ExitCode.GOOD, "voters 1, 2, 3 are among 1, 2, 3"),
        (of_voters(1, 2, 3), "1,2,3,4,5", ExitCode.GOOD, "voters 1, 2, 3 are among 1, 2, 3, 4, 5"),
        (of_voters(1, 2, 3), "1", ExitCode.REFUSED, "and only 1 would stay: the quorum would count 2, 3 for ever"),
        (of_voters(1, 4), "1,2,3", ExitCode.REFUSED, "quorum remove-voter ID"),
        (of_voters(1, 2, 3, commit_index=0), "1", ExitCode.GOOD, "nobody has founded the quorum yet"),
        (of_voters(1, 2, 3, leader=None), "1,2,3", ExitCode.UNREACHABLE, "who votes is not known for sure"),
        (of_voters(1), "1,x", ExitCode.USAGE, "--among"),
        (problem(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "1", ExitCode.NOT_AUTHORISED, "detail of"),
    ],
)
def test_members_are_stopped_for_good_only_if_no_voter_is_among_them(
    servers: type[Server], described: tuple[int, Any], among: str, code: ExitCode, says: str
) -> None:
    server = servers(described)
    done = CliRunner().invoke(cli, ["quorum", "check-voters", "--among", among, "--controllers", server.url])
    assert done.exit_code == code, done.output
    assert says in done.output


@pytest.mark.parametrize("asks", [("check-voters", "--among"), ("resize", "--remove-only", "--voters")])
@pytest.mark.parametrize(
    ("releases", "code"),
    [
        (("0.1.0", None, "unknown"), ExitCode.GOOD),
        (("0.2.0", "0.1.0", "0.1.0"), ExitCode.GOOD),
        (("0.1.0", "0.3.0", "0.2.0"), ExitCode.REFUSED),
    ],
)
def test_an_upgrade_over_several_minor_releases_is_refused(
    servers: type[Server],
    monkeypatch: pytest.MonkeyPatch,
    releases: tuple[str | None, ...],
    code: ExitCode,
    asks: tuple[str, ...],
) -> None:
    monkeypatch.setattr("pidkeeper.cli.quorum.build_version", lambda: "0.1.0")
    status, described = of_voters(1, 2, 3)
    told = zip(described.voters, releases, strict=True)
    voters = [msgspec.structs.replace(voter, release=release) for voter, release in told]
    server = servers((status, msgspec.structs.replace(described, voters=voters)))
    done = CliRunner().invoke(cli, ["quorum", *asks, "1,2,3", "--controllers", server.url])
    assert done.exit_code == code, done.output
    assert ("member 2 runs release 0.3.0, this is 0.1.0" in done.output) is (code is ExitCode.REFUSED)


def test_voters_that_nobody_tells_of_are_not_taken_for_fit() -> None:
    done = CliRunner().invoke(cli, ["quorum", "check-voters", "--among", "1", "--controllers", NOWHERE])
    assert done.exit_code == ExitCode.UNREACHABLE, done.output
