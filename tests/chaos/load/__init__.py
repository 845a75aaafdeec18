"""Who asks the cluster meanwhile, and what each was told."""
