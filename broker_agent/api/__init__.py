"""The HTTP interface of an agent: producer IDs, transactions, status."""
