"""Layouts: which worker owns which shard and source partition, and which host a worker runs on."""
