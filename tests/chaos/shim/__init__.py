"""A library that is preloaded into a process: where its connections go, and what its syncs of files come to."""
