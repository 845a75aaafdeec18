"""The one namespace of the distribution: the top-level folders are its packages (docs/decisions/0017)."""
