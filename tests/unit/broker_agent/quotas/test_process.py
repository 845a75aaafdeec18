"""Quotas of a whole process: whose they are by SASL, what its metrics tell, and what it says of a file of no use."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
from aiokafka import AIOKafkaProducer

from pidkeeper.broker_agent.security.user_list import MIN_ITERATIONS, User, make_verifier
from tests.support.agent_process import agent_process
from tests.support.log_leader import LogLeader
from tests.support.sasl_users import write_users
from tests.support.stub_controller import StubQuorum


async def seconds_to_produce(address: str, user: str, topic: str) -> float:
    """Five records of 10 KB, one after another."""
    producer = AIOKafkaProducer(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=user,
        sasl_plain_password=user,
    )
    async with producer, asyncio.timeout(20):
        begin = asyncio.get_running_loop().time()
        for _ in range(5):
            await producer.send_and_wait(topic, bytes(10_000), partition=0)
        return asyncio.get_running_loop().time() - begin


async def throttled(session: aiohttp.ClientSession, base: str) -> dict[str, float]:
    """How often and for how long, by the kind of quota."""
    async with session.get(f"{base}/metrics") as response:
        page = await response.text()
    found = re.findall(r'^pidkeeper_agent_quota_(\w+)_total{quota="(\w+)"} (\S+)$', page, re.MULTILINE)
    return {f"{kind} {name}": float(value) for name, kind, value in found}


async def test_each_user_has_its_own_quota_and_a_new_one_needs_no_restart(tmp_path: Path) -> None:
    users = [User(name, make_verifier(name, "SCRAM-SHA-256", MIN_ITERATIONS)) for name in ("alice", "bob")]
    write_users(tmp_path / "users", *users)
    quotas = tmp_path / "quotas"
    quotas.write_text("alice produce_bytes_per_second=25000\nbob unlimited\n* produce_bytes_per_second=1\n")
    leader = LogLeader()
    leader.add_topic("t")
    async with StubQuorum() as quorum:
        quorum.keep_logs(leader)
        settings = {"controllers": quorum.urls[0], "data__store": tmp_path / "store"}
        files = {"users_file": tmp_path / "users", "quotas_file": quotas}
        async with agent_process(broker_id=3, **settings, **files) as agent, aiohttp.ClientSession() as session:
            running = await agent.ready()
            assert await seconds_to_produce(running.kafka, "alice", "t") > 0.4
            told = await throttled(session, running.http)
            assert told["produce throttled"] >= 2 and told["produce throttled_seconds"] > 0.4
            assert not any(told[f"{kind} throttled"] for kind in ("fetch", "request"))
            await seconds_to_produce(running.kafka, "bob", "t")
            quotas.write_text("alice unlimited\n")
            await agent.logged("the file of quotas .* changed and was read again")
            await seconds_to_produce(running.kafka, "alice", "t")
            assert await throttled(session, running.http) == told, "neither bob nor alice was held since"
            assert await agent.stop() == 0


async def test_a_file_that_cannot_be_used_is_one_clear_line_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "quotas").write_text("* fetch_bytes_per_second=10MB\n")
    settings = {"controllers": "http://127.0.0.1:1", "quotas_file": tmp_path / "quotas"}
    async with agent_process(broker_id=3, **settings) as agent:
        assert await agent.wait() == 2
    assert agent.log[-1].endswith(
        f"quotas_file: {tmp_path / 'quotas'}, line 1: fetch_bytes_per_second must be a whole number from 1 to "
        "1099511627776, not '10MB'"
    )
