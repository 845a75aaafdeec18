"""The port through which bytes that must survive a power cut reach the disk. Imports nothing of ours."""
