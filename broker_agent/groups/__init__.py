"""Consumer groups at an agent: members come together here, the quorum keeps their generations and offsets."""
