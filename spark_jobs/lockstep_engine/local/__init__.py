"""Operators over rows that this process has.

The law: what is worked out here is, as a Z-set at each step, what Spark makes of the same rows. Spark
takes a tenth of a second and more to plan a join or an aggregate of a handful of rows, and a few
hundredths to compute expressions over rows that come with the request: it does all of the latter, and
what its values mean is never decided here. What cannot be done alike is left to it, and so is much.
"""
