"""The data plane of an agent: the bytes of partitions live in an object store, the quorum orders them."""
