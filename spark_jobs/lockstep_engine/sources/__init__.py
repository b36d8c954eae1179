"""Sources: recorded ranges of Kafka topics as deltas."""
