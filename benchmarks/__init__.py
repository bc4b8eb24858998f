"""Measuring the implementations: the sweep, its journal, and what asv runs. Imports neither torch nor triton."""
