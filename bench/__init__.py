"""Measurements: what the machine allows at most, and what pidkeeper reaches of it. Not part of the distribution."""
