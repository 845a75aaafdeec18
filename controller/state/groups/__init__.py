"""Consumer groups and the offsets that they committed, as the quorum knows them."""
