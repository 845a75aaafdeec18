"""The console in a real Chromium, before a real cluster: what it shows, how it follows, who may do what by it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pytest

from pidkeeper.cli.controllers import CERTIFICATES
from pidkeeper.cli.local_cluster import Controller, LocalCluster
from tests.integration.test_tokens import Tokens
from tests.support.cluster import (
    CONTROLLER_OPTIONS,
    bring_back,
    followers,
    metrics,
    pause,
    resume,
    running_cluster,
    wait_until,
)
from tests.support.http_calls import call

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
axe_api = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")

BROWSER: Final = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium")

FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS: Final = 20_000
"""When a test gives up, never how fast a page must be."""

HOSTILE: Final = "<img src=x onerror=\"document.title='stolen'\"><script>document.title='stolen'</script>"
PHONE: Final = (390, 844)
DESK: Final = (1280, 900)

NETWORK: Final = "Failed to load resource"
"""How Chromium itself tells of an answer above 399, and of a member that is gone. All else in its log is the page's."""


Seen = TypeVar("Seen")


class Visit:
    """One page of one visitor, and all that it asked for and complained of."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: set[str] = set()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.add("{0.scheme}://{0.netloc}".format(urlsplit(request.url))))

    def open(self, member: Controller) -> None:
        self.page.goto(f"{member.http}/")

    def shows(self, selector: str, text: str | re.Pattern[str]) -> None:
        sync_api.expect(self.page.locator(selector)).to_contain_text(text, timeout=PATIENCE_MS)

    def lacks(self, selector: str) -> None:
        sync_api.expect(self.page.locator(selector)).to_be_hidden(timeout=PATIENCE_MS)

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def sign_in(self, token: str) -> None:
        self.page.fill("#token", token)
        self.page.click("#sign-in button")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield launched
        launched.close()


@contextmanager
def visiting(browser: Any, **options: Any) -> Iterator[Visit]:
    """A visitor of one member, whose page asks no other one and complains of nothing."""
    context = browser.new_context(viewport={"width": DESK[0], "height": DESK[1]}, **options)
    try:
        visit = Visit(context.new_page())
        yield visit
        home = "{0.scheme}://{0.netloc}".format(urlsplit(visit.page.url))
    finally:
        context.close()
    assert visit.asked == {home}
    assert [complaint for complaint in visit.complaints if NETWORK not in complaint] == []


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("console"), agents=2, data=True) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: LocalCluster) -> LocalCluster:
    """Three controllers and two agents that keep records, all ready."""
    bring_back(_cluster)
    return _cluster


def at_leader(cluster: LocalCluster, look: Callable[[Controller], Seen]) -> Seen:
    """Look at the leader; once more if it is another one by then, for on a busy machine members elect anew."""
    leader = cluster.leader()
    try:
        return look(leader)
    except (AssertionError, sync_api.Error):
        if (other := cluster.leader()).id == leader.id:
            raise
        return look(other)


def register(leader: Controller, broker_id: int) -> dict[str, Any]:
    """Who asks as this broker from now on."""
    answer = call(leader.http, "POST", f"/v1/brokers/{broker_id}/register", {"incarnation_id": "of a test"})
    return {"broker_id": broker_id, "broker_epoch": answer.json()["broker_epoch"]}


def allocate(leader: Controller, broker: dict[str, Any]) -> int:
    """The first ID of a block."""
    first: int = call(leader.http, "POST", "/v1/producer-ids/allocate", broker).json()["producer_id_start"]
    return first


def begin_transaction(leader: Controller, broker: dict[str, Any], name: str) -> None:
    wanted = {**broker, "transactional_id": name}
    init = {**wanted, "transaction_timeout_ms": 600_000}
    pair = call(leader.http, "POST", "/v1/transactions/init-producer-id", init).json()
    producer = {name: pair[name] for name in ("producer_id", "producer_epoch")}
    topics = [{"topic": "orders", "partitions": [0, 1]}]
    done = call(leader.http, "POST", "/v1/transactions/add-partitions", {**wanted, **producer, "topics": topics})
    assert done.status == 200, done.body


@contextmanager
def held_back(cluster: LocalCluster, topic: str, transactional_id: str) -> Iterator[None]:
    """One record is committed to a topic, and ten follow in a transaction that stays open meanwhile."""
    bootstrap = {"bootstrap.servers": ",".join(agent.kafka for agent in cluster.layout.agents), "log_level": 0}
    plain = confluent_kafka.Producer(bootstrap)
    plain.produce(topic, b"x", partition=0)
    plain.flush(PATIENCE_MS / 1000)
    producer = confluent_kafka.Producer(bootstrap | {"transactional.id": transactional_id})
    producer.init_transactions(PATIENCE_MS / 1000)
    producer.begin_transaction()
    for _ in range(10):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(PATIENCE_MS / 1000) == 0, "the records are not taken"
    yield
    producer.abort_transaction(PATIENCE_MS / 1000)


def test_it_shows_the_quorum_its_brokers_and_each_block_as_it_is_given(browser: Any, cluster: LocalCluster) -> None:
    leader = cluster.leader()
    broker = register(leader, 31)
    with visiting(browser) as visit:
        visit.open(leader)
        visit.shows("#state", "live")
        visit.shows("#leader", f"member {leader.id}")
        visit.shows("#health", "healthy")
        visit.shows("#tolerance", "1 more may fail")
        for member in cluster.layout.controllers:
            visit.shows("#voters", f"member {member.id}")
        assert re.search(r"replicate\s+0", visit.text("#voters")), "the leader knows the lag"
        for agent in cluster.layout.agents:
            row = f"#brokers tr[data-key='{agent.id}']"
            visit.shows(row, agent.kafka)
            visit.shows(row, re.compile(r"active\s*\d+,\d{3}"))
        first = allocate(leader, broker)
        visit.shows("#events", f"broker 31 got IDs {first:,} to {first + 999:,}")
        visit.shows("#next", f"{first + 1000:,}")
        visit.shows("#shares tr[data-key='31']", "1,000")
        visit.shows("#left", re.compile(r"centuries"))
        assert visit.page.locator("#chart rect").count() > 0
        visit.page.click("#pause")
        paused_at = allocate(leader, broker)
        visit.shows("#pause", "Go on (1)")
        assert f"{paused_at:,}" not in visit.text("#events")
        visit.page.click("#pause")
        visit.shows("#events", f"{paused_at:,}")


def test_what_a_client_calls_itself_is_text_and_never_markup(browser: Any, cluster: LocalCluster) -> None:
    def look(leader: Controller) -> None:
        begin_transaction(leader, register(leader, 32), HOSTILE)
        with visiting(browser) as visit:
            visit.open(leader)
            visit.shows("#transactions", HOSTILE)
            visit.shows("#transactions", "Ongoing")
            assert visit.page.locator("main img, main script").count() == 0
            assert "stolen" not in visit.page.title()

    at_leader(cluster, look)


def test_topics_show_how_far_they_are_and_who_holds_them_back(browser: Any, cluster: LocalCluster) -> None:
    with visiting(browser) as visit:
        visit.open(cluster.leader())
        row = "#topics tr[data-key='orders/0']"
        with held_back(cluster, "orders", HOSTILE):
            visit.shows(row, "1, 10 behind")
            visit.shows(row, f"{HOSTILE}, for")
            visit.shows("#bounds", re.compile(r"rows\s*[1-9]\d* of 200,000"))
            assert visit.page.locator("main img, main script").count() == 0
        visit.shows(row, "at the end")
    with visiting(browser) as visit:
        visit.open(followers(cluster, cluster.leader())[0])
        visit.shows("#state", "live")
        visit.lacks("#topics-section")


def test_groups_show_their_members_and_where_these_come_together(browser: Any, cluster: LocalCluster) -> None:
    def look(leader: Controller) -> None:
        group = {**register(leader, 37), "group_id": HOSTILE, "protocol_type": "consumer"}
        known = call(leader.http, "POST", "/v1/groups/find", {"group_id": HOSTILE}).json()["group"]
        with visiting(browser) as visit:
            visit.open(leader)
            after, generation = (-1, 0) if known is None else (known["version"], known["generation"])
            for members, shown in ((["m", "n"], "2 members"), ([], "nobody")):
                wanted = {"after": after, "generation": generation, "members": [[one, None, "", ""] for one in members]}
                done = call(leader.http, "POST", "/v1/groups/commit", {**group, **wanted}).json()
                assert done["taken"], done
                after = done["group"]["version"]
                visit.shows("#groups", shown)
                visit.shows("#groups", "broker 37")
            visit.shows("#groups", HOSTILE)
            visit.shows("#group-bounds", re.compile(r"groups\s*[1-9]\d* of 10,000"))
            assert visit.page.locator("main img, main script").count() == 0

    at_leader(cluster, look)
    with visiting(browser) as visit:
        visit.open(followers(cluster, cluster.leader())[0])
        visit.shows("#state", "live")
        visit.lacks("#groups-section")


def test_the_owner_of_an_id_is_found_by_keyboard_alone(browser: Any, cluster: LocalCluster) -> None:
    leader = cluster.leader()
    first = allocate(leader, register(leader, 33))
    with visiting(browser) as visit:
        visit.open(leader)
        visit.shows("#state", "live")
        keys = visit.page.keyboard
        keys.press("Tab")
        assert visit.page.evaluate("document.activeElement.className") == "skip"
        keys.press("Enter")
        for _ in range(10):
            keys.press("Tab")
            if visit.page.evaluate("document.activeElement.id") == "owner-id":
                break
        keys.type(f"{first + 7:,}")
        keys.press("Enter")
        visit.shows("#owner", re.compile(rf"Given to\s*broker 33.*{first:,} to {first + 999:,}", re.DOTALL))
        keys.press("Control+a")
        keys.type("9223372036854775807")
        keys.press("Enter")
        visit.shows("#owner", "Nobody has ID 9,223,372,036,854,775,807: ")
        keys.press("Control+a")
        keys.type("9223372036854775808")
        keys.press("Enter")
        visit.shows("#owner", "a number from 0 to 9,223,372,036,854,775,807")


def test_it_follows_the_end_of_a_leader_and_says_what_is_old(browser: Any, cluster: LocalCluster) -> None:
    with ExitStack() as visits:

        def look(leader: Controller) -> tuple[Controller, Visit, Visit]:
            by_leader, by_follower = (visits.enter_context(visiting(browser)) for _ in range(2))
            follower = followers(cluster, leader)[0]
            by_leader.open(leader)
            by_follower.open(follower)
            by_leader.shows("#state", "live")
            by_follower.shows("#state", "live")
            by_follower.shows("#leader", f"member {leader.id}")
            return leader, by_leader, by_follower

        leader, by_leader, by_follower = at_leader(cluster, look)
        by_follower.shows("#quorum-note", "Only the leader knows how far the others are: see its console")
        assert by_follower.page.get_attribute("#quorum-note a", "href") == f"{leader.http}/"
        cluster.kill(leader)
        new = cluster.leader()
        by_follower.shows("#leader", f"member {new.id}")
        by_follower.shows("#events", f"member {new.id} leads term")
        by_follower.shows("#events", "the connection from the one before broke")
        by_leader.shows("#state", "cut off")
        by_leader.shows("#banners", f"Cut off from member {leader.id} since ")
        assert "old" in by_leader.page.get_attribute("#main", "class")
        assert by_leader.page.is_disabled("#transfer")
        assert faults(by_leader) == [], "what is old can be read, too"
        cluster.start()
        by_leader.shows("#state", "live")
        by_leader.lacks("#banners b")
        assert "old" not in (by_leader.page.get_attribute("#main", "class") or "")


def test_a_member_that_lost_the_others_or_hangs_is_not_taken_for_sound(browser: Any, cluster: LocalCluster) -> None:
    leader = cluster.leader()
    alone, other = followers(cluster, leader)
    with visiting(browser) as visit:
        visit.open(alone)
        visit.shows("#state", "live")
        cluster.kill(leader, other)
        visit.shows("#state", "no leader")
        visit.shows("#banners", f"Member {alone.id} knows no leader")
        assert "old" in visit.page.get_attribute("#main", "class")
        pause(cluster, alone)
        visit.shows("#banners", "It did not answer in time.")
        resume(cluster, alone)
        visit.shows("#banners", f"Member {alone.id} knows no leader")


def test_a_page_that_nobody_sees_leaves_its_member_alone(browser: Any, cluster: LocalCluster) -> None:
    leader = cluster.leader()
    broker = register(leader, 35)

    def streams() -> float:
        return metrics(leader)["pidkeeper_event_streams"]

    with visiting(browser) as visit:
        visit.open(leader)
        visit.shows("#state", "live")
        wait_until(lambda: streams() == 1, "the stream of the page")
        hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s});"
        told = "document.dispatchEvent(new Event('visibilitychange'))"
        visit.page.evaluate(hide % "true" + told)
        wait_until(lambda: streams() == 0, "the end of its stream")
        first = allocate(leader, broker)
        visit.page.evaluate(hide % "false" + told)
        visit.shows("#events", "nobody saw this page from")
        visit.shows("#next", f"{first + 1000:,}")
        visit.shows("#shares tr[data-key='35']", f"{first:,} to {first + 999:,}")
        visit.shows("#state", "live")


def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_screen(browser: Any, cluster: LocalCluster) -> None:
    leader = cluster.leader()
    broker = register(leader, 34)
    begin_transaction(leader, broker, "seen-by-axe")
    with visiting(browser) as visit, held_back(cluster, "seen", "holds-what-axe-sees"):
        page = visit.page
        visit.open(leader)
        visit.shows("#state", "live")
        visit.shows("#topics", "holds-what-axe-sees")
        visit.shows("#events", f"{allocate(leader, broker):,}")
        visit.shows("#transactions", "seen-by-axe")
        page.fill("#owner-id", "1")
        page.click("#owner-form button")
        visit.shows("#owner", "Given to")
        for scheme, (width, height) in product(("light", "dark"), (PHONE, DESK)):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": height})
            assert faults(visit) == [], (scheme, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.click("#transfer")
            visit.shows("#dialog-title", "Transfer leadership")
            assert faults(visit) == [], scheme
            page.keyboard.press("Escape")


def faults(visit: Visit) -> list[str]:
    """What axe calls serious or critical, with where it is."""
    found = axe_api.Axe().run(visit.page).response["violations"]
    return [
        f"{one['id']}: {node['target']}: {node['failureSummary']}"
        for one in found
        if one["impact"] in {"serious", "critical"}
        for node in one["nodes"]
    ]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens(tmp_path_factory.mktemp("tokens") / "tokens")


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory, tokens: Tokens) -> Iterator[LocalCluster]:
    """Three controllers that answer nobody without a token."""
    directory: Path = tmp_path_factory.mktemp("closed")
    founder = directory / "operators"
    founder.write_text("the operators' token")
    tokens.create("first", "viewer")
    listed = {"tokens_file": str(tokens.file), "operator_token_file": str(founder)}
    cluster = LocalCluster(directory / "cluster", agents=0, controller_options=CONTROLLER_OPTIONS | listed)
    try:
        cluster.start()
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


def leader_of(cluster: LocalCluster, token: str) -> Controller:
    def find() -> Controller | None:
        for member in cluster.layout.controllers:
            if call(member.http, "GET", "/v1/quorum", token=token).json()["role"] == "leader":
                return member
        return None

    found = wait_until(find, "a leader")
    assert found is not None
    return found


def test_a_viewer_signs_in_and_sees_and_gives_no_orders(browser: Any, closed: LocalCluster, tokens: Tokens) -> None:
    token = tokens.create("grafana", "viewer")
    leader = leader_of(closed, token)
    with visiting(browser) as visit:
        visit.open(leader)
        visit.shows("#sign-in", "bring a token")
        visit.lacks("#main")
        visit.sign_in("wrong")
        visit.shows("#sign-in-wrong", "a valid bearer token is required")
        assert faults(visit) == []
        visit.sign_in(tokens.create("app", "producer"))
        visit.shows("#sign-in-wrong", "app may not do this: it needs the role viewer")
        visit.sign_in(token)
        visit.shows("#who", "grafana, viewer")
        visit.shows("#state", "live")
        visit.lacks("#transfer")
        visit.lacks("#orders")
        stored = visit.page.evaluate("[Object.values(sessionStorage), Object.values(localStorage), document.cookie]")
        assert stored == [[token], [], ""], "it is in this tab alone"
        tokens.revoke("grafana")
        visit.shows("#sign-in-wrong", "a valid bearer token is required")
        visit.lacks("#main")


def test_an_operator_raises_the_floor_and_hands_leadership_over(
    browser: Any, closed: LocalCluster, tokens: Tokens
) -> None:
    token = tokens.create("alice", "operator")
    leader = leader_of(closed, token)
    target = followers(closed, leader)[0]
    with visiting(browser) as visit:
        visit.open(leader)
        visit.sign_in(token)
        visit.shows("#who", "alice, operator")
        visit.page.fill("#floor", "5,000")
        visit.page.click("#raise")
        visit.shows("#dialog-text", "5,000 IDs are skipped for good")
        assert visit.page.is_disabled("#dialog-do")
        visit.page.fill("#confirm", "4000")
        assert visit.page.is_disabled("#dialog-do")
        visit.page.fill("#confirm", "5000")
        visit.page.click("#dialog-do")
        visit.shows("#next", "5,000")
        visit.page.fill("#floor", "9223372036854775807")
        visit.page.click("#raise")
        visit.page.fill("#confirm", "9223372036854775807")
        visit.page.click("#dialog-do")
        visit.shows("#dialog-problem", "INVALID_REQUEST, HTTP 400")
        visit.page.keyboard.press("Escape")
        visit.page.click("#transfer")
        visit.page.select_option("#target", str(target.id))
        visit.page.fill("#confirm", "transfer")
        visit.page.click("#dialog-do")
        visit.shows("#leader", f"member {target.id}")
        visit.shows("#events", f"member {target.id} leads term")
        visit.lacks("#transfer")
        visit.page.click("#sign-out")
        visit.shows("#sign-in", "bring a token")
    assert leader_of(closed, token).id == target.id


def test_whoever_has_a_certificate_is_signed_in_by_it(browser: Any, tmp_path: Path) -> None:
    with running_cluster(tmp_path, controllers=1, secure=True) as cluster:
        (member,) = cluster.layout.controllers
        certificates = cluster.directory / CERTIFICATES
        shown = [
            {
                "origin": member.http,
                "certPath": str(certificates / "operator.pem"),
                "keyPath": str(certificates / "operator.key"),
            }
        ]
        with visiting(browser, ignore_https_errors=True, client_certificates=shown) as visit:
            visit.open(member)
            visit.shows("#who", "operator")
            visit.shows("#state", "live")
            visit.lacks("#sign-in")
        with visiting(browser, ignore_https_errors=True) as visit:
            visit.open(member)
            visit.shows("#sign-in", "open this page with a client certificate")
            visit.lacks("#main")
