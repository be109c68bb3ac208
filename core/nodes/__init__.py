"""Several machines that train one run together: they find each other, start together, and end together.

Every machine (node) starts the same run folder, which all of them share. Node 0 has the keeper of the run; the
others watch what they start themselves. Before each attempt all nodes meet at node 0 (`meeting`), and the
connections of that meeting stay open: a node that is killed, or falls silent, is missed by the others.
"""
