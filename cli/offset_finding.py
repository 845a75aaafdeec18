"""Offsets by time, found by an agent as consumers have them found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from pidkeeper.broker_agent.kafka.wire.data.list_offsets import PartitionOffset
from pidkeeper.cli.controllers import STEP_SECONDS
from pidkeeper.cli.failures import CommandError, ExitCode, NobodyError
from pidkeeper.cli.kafka_client import KafkaClient, ListenerError
from pidkeeper.cli.log_source import PASSING, TOPIC_AUTHORIZATION_FAILED
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.kafka.wire.primitives import WireError

PARTITIONS_AT_ONCE: Final = 1000
"""In one request, which may take 64 KiB."""


def offsets_since(
    client: KafkaClient, topic: str, partitions: Sequence[int], since_ms: int, seconds: float
) -> dict[int, int]:
    """The offset of the first record since a time, by partition; without those that have none.

    `seconds`: how long an agent may have to find them. Raises CommandError, NobodyError if no offset comes in time.
    """
    found: dict[int, int] = {}
    for first in range(0, len(partitions), PARTITIONS_AT_ONCE):
        left = list(partitions[first : first + PARTITIONS_AT_ONCE])
        deadline = time.monotonic() + seconds
        while left:
            answers = _asked(client, topic, left, since_ms)
            found |= {one.partition: one.offset for one in answers if not one.error_code and one.offset >= 0}
            passing = {one.partition: _checked(topic, one) for one in answers if one.error_code}
            left = list(passing)
            if left and time.monotonic() >= deadline:
                raise NobodyError(f"no offset of {topic}-{left[0]} within {seconds:g} s: {passing[left[0]]}")
            time.sleep(STEP_SECONDS if left else 0)
    return found


def _asked(client: KafkaClient, topic: str, partitions: list[int], since_ms: int) -> list[PartitionOffset]:
    """The answers for exactly these partitions."""
    try:
        answers = client.list_offsets(topic, partitions, since_ms)
        if sorted(one.partition for one in answers) != sorted(partitions):
            raise WireError("an answer about other partitions")
    except (OSError, WireError, ListenerError) as error:
        raise NobodyError(f"offsets of {topic} cannot be found: {error}") from error
    return answers


def _checked(topic: str, answer: PartitionOffset) -> str:
    """The name of an error that passes. Raises CommandError for another one."""
    name = f"{topic}-{answer.partition}"
    if answer.error_code == TOPIC_AUTHORIZATION_FAILED:
        raise CommandError(f"{name} may not be described by this user", ExitCode.NOT_AUTHORISED)
    if answer.error_code not in PASSING:
        known = next((one.name for one in ErrorCode if one.kafka_code == answer.error_code), str(answer.error_code))
        raise CommandError(f"the agent finds no offset of {name}: {known}", ExitCode.REFUSED)
    return PASSING[answer.error_code]
