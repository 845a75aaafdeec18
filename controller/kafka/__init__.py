"""The interface of a controller in Kafka's protocol: KIP-730's own RPC, and what a broker needs to be let in for it."""
