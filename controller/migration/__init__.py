"""From ZooKeeper to the quorum (KIP-730, "Bridge Release" and "Upgrade from ZK")."""
