"""Sources: recorded slices of Kafka topics and Iceberg tables as deltas."""
