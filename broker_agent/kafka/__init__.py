"""What Kafka clients connect to: sockets in `listener`, answers in `responder`, one table of APIs in `dispatch`."""
