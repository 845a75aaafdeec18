"""Proxies between all processes, and what they do to the bytes that pass."""
