"""The vocabulary that every part shares: ids and blocks, records, errors, wire values. Imports nothing of ours."""
