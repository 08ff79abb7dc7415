"""The bytes on the wire: ids, lanes, payloads, messages and Kafka's record batches."""
