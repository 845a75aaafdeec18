"""What every HTTP service of pidkeeper is made of, from settings and start to routes, probes and metrics."""
