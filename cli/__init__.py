"""The `pidkeeper` command. Talks to running members over HTTP like any user; its offline tools read the files."""
