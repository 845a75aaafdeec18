"""Files here and on any other file system: found, read and written in one way, by tasks and by the driver."""
