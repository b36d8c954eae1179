"""The embedded stack: a broker, a warm Spark and Airflow below one folder, on loopback only."""
