"""mirrortest: a tester that stands on both sides of a Kafka mirror."""

__version__ = "0.1.0"
