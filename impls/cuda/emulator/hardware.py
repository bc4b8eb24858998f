"""Sizes that are the same on every GPU."""

LANES = 32
"""Of a warp."""
SECTOR = 32
"""Bytes: what global memory is moved in."""
