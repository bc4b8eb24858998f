"""Finds what a kernel may not do though its results came out right: races, reads of unwritten bytes, accesses out of bounds."""
