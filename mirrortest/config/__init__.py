"""Options: Kafka client properties, units, thresholds, a run's id and its topics' names."""
