"""The data plane's partition logs: where the quorum says that batches are, and what the store has there."""
