"""The broker's share of the ID space: the blocks it holds, and when it asks for more (KIP-730, "Broker").

`reserve`, `candidates` and `prefetch` are pure; `prefetcher` runs the rounds.
"""
