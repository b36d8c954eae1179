"""Workers that wait for each other, and agree on one order (timely dataflow, seed 002)."""
