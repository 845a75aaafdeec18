"""What is done to a cluster that runs."""
