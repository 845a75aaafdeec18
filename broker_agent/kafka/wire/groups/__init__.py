"""The part of Kafka's wire protocol about consumer groups and their offsets. Pure functions on bytes."""
