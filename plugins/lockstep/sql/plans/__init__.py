"""Plans: the nodes, and the rewrites that keep their meaning at a smaller cost."""
