"""The engine: a circuit and a range of steps, evaluated on Spark and committed as one version."""
