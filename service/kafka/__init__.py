"""Kafka's protocol, as far as every listener of it needs it: connections, SASL, and what frames are made of."""
