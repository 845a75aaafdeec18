"""Who may use an agent as a producer, and as which: users of SASL, and rules for transactional ids."""
