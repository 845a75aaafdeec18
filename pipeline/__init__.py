"""The audit: reads archives, logs and Kafka segments from outside, and trusts no code of the controllers."""
