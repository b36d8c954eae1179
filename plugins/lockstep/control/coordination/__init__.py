"""Workers that wait for each other, and agree on one order (as in timely dataflow)."""
