"""Counts what a kernel executes and moves, and bounds from below the time that this takes."""
