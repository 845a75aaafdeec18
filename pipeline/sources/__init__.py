"""Data sources for Spark over the readers in pipeline.formats."""
