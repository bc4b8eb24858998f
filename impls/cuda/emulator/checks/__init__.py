"""Finds what a kernel may not do though its results came out right: accesses that nothing orders."""
