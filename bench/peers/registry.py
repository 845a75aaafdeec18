"""All peers, by the name under which they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.peers.etcd import Etcd
from bench.peers.interface import Peer
from bench.peers.kafka import Kafka
from bench.peers.python_peers import PySyncObj, Raftos
from bench.peers.zookeeper import ZooKeeper

PEERS: Final[Mapping[str, type[Peer]]] = {
    "zookeeper": ZooKeeper,
    "etcd": Etcd,
    "kafka": Kafka,
    "pysyncobj": PySyncObj,
    "raftos": Raftos,
}
