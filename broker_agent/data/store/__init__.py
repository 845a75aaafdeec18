"""Where the bytes live: one port to immutable objects, and what stands behind it."""
