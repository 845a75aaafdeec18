"""The part of Kafka's wire protocol that an ID service needs: API keys 3, 10, 18 and 22. Pure functions on bytes."""
