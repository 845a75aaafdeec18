"""Peer links: persistent, framed, authenticated. A message that cannot be sent is dropped: Raft sends it again."""
