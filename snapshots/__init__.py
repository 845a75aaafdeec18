"""What is on disk and read from outside of the controllers: snapshots and the layout of the archive."""
