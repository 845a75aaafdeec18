"""Pure readers of bytes. No Spark, no clock, no file system: they are given an open file."""
