"""The way to the controllers: one client that finds the leader, over any transport."""
