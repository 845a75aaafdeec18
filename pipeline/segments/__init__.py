"""Kafka's segments: read once, judged by producer, concluded in one place.

`plan` numbers files, logs and parts; `read` makes numeric rows and summaries of parts; `judge` looks at all rows of a
share of the producers; `conclude` makes findings of what these leave. A log is one copy of a partition: the folder
that its segments lie in. Two replicas, or two backups of one, never run into each other.
"""
