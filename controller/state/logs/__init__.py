"""Partition logs as the quorum knows them: topics, coordinates of batches, producers, and where transactions stand.

`state` holds and replays; `draft` has what a batch of decisions makes of it.
"""
