"""Other projects' own tests and tools, against a Kafka broker and then against agents: the same is required."""
