"""What Kafka clients are answered: `responder` has the answers, `dispatch` the one table of APIs."""
