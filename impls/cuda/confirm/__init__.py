"""Holds the emulator against a GPU: small kernels on many inputs, whose results have to be the same bits."""
