"""What frames of Kafka's protocol are made of, and the APIs that every listener serves. Pure functions on bytes."""
