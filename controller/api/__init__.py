"""The HTTP interface of one member: calls under /v1, quotas, probes, metrics, and the document that describes them."""
