"""The driver: the only place where core, storage, links and state meet, and the leader's decide loop."""
