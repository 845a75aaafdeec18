"""What is on disk and read from outside of the controllers: the file port, snapshots, the layout of the archive."""
