"""The cost of producing and verifying messages, compared with common Kafka tools."""
