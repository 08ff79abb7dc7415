"""Access to Kafka: sending and fetching batches, compacted topics as tables, administration.

Applications use `sender`, `reader`, `admin`, `compacted` and `follower`. These are written against
`ports` and use no client library themselves. `fast` and `public` implement the ports.
"""
