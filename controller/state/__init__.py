"""The replicated state: `decide` turns requests into outcome records, `replay` alone changes anything.

Pure: no clock, file, socket or event loop. Every member that replays the same records holds the same state.
"""
