"""The one door to Kafka: clients, admin, whole batches out and in, compacted topics as tables.

Everything that knows the client library lives here, and `seam` is the only module that touches
what the library does not promise to keep; with `portable` instead, nothing does.
"""
