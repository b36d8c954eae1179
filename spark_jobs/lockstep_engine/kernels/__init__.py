"""Kernels: pure functions over the numpy arrays of one shard, without Spark, I/O or loops over
rows."""
