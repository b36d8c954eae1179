"""What is asked of Iceberg tables through PyIceberg, by the adapters and by the engine alike."""
