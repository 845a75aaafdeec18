"""The demonstration: a cluster of real processes under load, real Kafka clients as witnesses, kills, and the proof."""
