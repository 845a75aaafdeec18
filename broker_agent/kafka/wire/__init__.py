"""The part of Kafka's wire protocol that producers need before they write. Pure functions on bytes."""
