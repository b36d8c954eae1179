"""Views written in Python: functions that return a DataFrame, translated to Spark SQL.

Run as a process of its own (`python -m lockstep.frames`), since it executes a project's code.
"""
