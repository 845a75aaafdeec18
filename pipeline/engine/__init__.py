"""Who runs the kernels of an audit: Spark, or this process alone. Kernels know neither."""
