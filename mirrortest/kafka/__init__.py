"""Everything that talks to Kafka: batches out and in, compacted topics as tables, administration.

`sender`, `reader`, `admin`, `compacted` and `follower` are for the applications. They are written
against `ports`, and use no client library themselves: `fast` and `public` implement the ports.
"""
