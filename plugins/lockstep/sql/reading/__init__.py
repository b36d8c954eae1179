"""Project files as text: the spec, statements with their places, and the syntax of queries."""
