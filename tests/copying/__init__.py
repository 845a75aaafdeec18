"""Kafka's system test of KIP-447: copiers in one group, killed, stopped, rebalanced; each message once, in order."""
