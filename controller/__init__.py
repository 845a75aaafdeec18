"""One member of the controller quorum."""
