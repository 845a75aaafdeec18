"""The broker's standing with the controllers: its registration, its heartbeats, and who else is registered."""
