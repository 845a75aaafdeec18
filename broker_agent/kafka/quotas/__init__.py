"""How much each principal may ask of an agent: buckets by principal, and a front of the application that counts."""
