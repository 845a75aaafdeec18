"""Chaos: faults of links, processes, disks and clocks in a cluster of real processes under load, and a check of all."""
