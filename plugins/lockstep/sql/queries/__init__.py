"""From the syntax of a query to its plan, clause by clause, written out naively."""
