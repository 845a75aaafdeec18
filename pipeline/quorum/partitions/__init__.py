"""What members' files tell of partition logs: the states that snapshots keep, and what records make of them."""
