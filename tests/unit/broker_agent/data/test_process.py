"""The whole process with a store: it registers, serves records, stops, and says why it cannot start."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.support.agent_process import agent_process
from tests.support.log_leader import LogLeader
from tests.support.stub_controller import StubQuorum


async def test_records_survive_the_agent_that_took_them(tmp_path: Path) -> None:
    async with StubQuorum(2) as quorum:
        quorum.keep_logs(LogLeader())
        settings = {"controllers": ",".join(quorum.urls), "data__store": tmp_path / "store"}
        async with agent_process(broker_id=3, **settings) as agent:
            running = await agent.ready()
            producer = AIOKafkaProducer(bootstrap_servers=running.kafka, enable_idempotence=True, linger_ms=2)
            await producer.start()
            async with asyncio.timeout(20):
                sent = [await producer.send("t", b"%d" % number) for number in range(100)]
                assert [(await one).offset for one in sent] == list(range(100))
            await producer.stop()
            async with aiohttp.ClientSession(running.http) as http:
                assert "[+]store ok" in await (await http.get("/readyz?verbose")).text()
                shown = await (await http.get("/metrics")).text()
            assert re.search(r"^pidkeeper_agent_data_received_bytes_total [1-9]", shown, re.MULTILINE)
            assert await agent.stop() == 0
            assert not [line for line in agent.log if "CRITICAL" in line or "ERROR" in line or "WARNING" in line]
        quorum.leader = quorum.members[1]
        async with agent_process(broker_id=4, **settings) as agent:
            consumer = AIOKafkaConsumer(bootstrap_servers=(await agent.ready()).kafka, auto_offset_reset="earliest")
            await consumer.start()
            consumer.assign([TopicPartition("t", 0)])
            async with asyncio.timeout(20):
                found = [await consumer.getone() for _ in range(100)]
            assert [(one.offset, one.value) for one in found] == [(number, b"%d" % number) for number in range(100)]
            await consumer.stop()
            assert await agent.stop() == 0


async def test_a_store_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = {"controllers": "http://127.0.0.1:1", "data__store": tmp_path / "file"}
    async with agent_process(broker_id=3, **settings) as agent:
        assert await agent.wait() == 2
    assert f"CRITICAL pidkeeper.broker_agent.server data.store: {tmp_path / 'file'} is no directory" in agent.log[-1]
