"""Measuring the implementations: the sweep, its journal, and the view of both that asv runs. Imports neither torch nor triton."""
