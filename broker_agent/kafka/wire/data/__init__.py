"""The part of Kafka's wire protocol that moves records and describes topics. Pure functions on bytes."""
