"""mirrortest: tests the mirroring of Kafka topics from both sides of the mirror."""

__version__ = "0.1.0"
