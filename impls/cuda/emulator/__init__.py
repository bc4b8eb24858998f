"""Executes PTX on the CPU, with the arithmetic of the silicon where that is known, and checks and counts what it does."""
