"""Interchangeable implementations of one operation, NVFP4 attention, and the contract between them.

Start with `contract` (what an implementation is), `nvfp4` (the number format) and `reference` (what is right).
Importing this package imports neither torch nor triton.
"""
