"""All settings of one seed, each part drawn from a random stream of its own."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE
from pidkeeper.protocol.metadata_version import LATEST
from tests.simulation.data_plane import DataLoad
from tests.simulation.data_plane import draw as draw_data
from tests.simulation.expiry import Crowding
from tests.simulation.expiry import draw as draw_crowding
from tests.simulation.producer import Transactional
from tests.simulation.producer import draw as draw_transactional
from tests.simulation.swarm import Migrating, Swarm, draw_migrating, draw_mistrusted, draw_slow_disks
from tests.simulation.swarm import draw as draw_swarm
from tests.simulation.world import World


class Drawn(msgspec.Struct, frozen=True):
    """What a cluster is made with."""

    load: DataLoad
    migrating: Migrating
    swarm: Swarm
    transactional: Transactional
    crowding: Crowding


def draw(world: World) -> Drawn:
    """The settings of one seed."""
    load = draw_data(world.stream("data-load"))
    migrating = draw_migrating(world.stream("migrating"))
    transactional = draw_transactional(world.stream("transactional"))
    crowding = draw_crowding(world.stream("crowding"), transactional)
    return Drawn(load, migrating, _swarm(world, migrating, newest=load.newest), transactional, crowding)


def _swarm(world: World, migrating: Migrating, *, newest: bool) -> Swarm:
    swarm = draw_swarm(world.stream("swarm"))
    if newest:
        swarm = replace(swarm, first_build=LATEST)
    swarm = replace(swarm, weights=swarm.weights | draw_mistrusted(world.stream("mistrusted")))
    swarm = replace(swarm, weights=swarm.weights | draw_slow_disks(world.stream("slow-disk-faults")))
    if not migrating.present:
        return swarm
    build = swarm.first_build if swarm.first_build == LATEST else migrating.first_build
    size = DEFAULT_BLOCK_SIZE if migrating.kafka_blocks else swarm.block_size
    return replace(swarm, weights=swarm.weights | migrating.weights, first_build=build, block_size=size)
