"""The command line of the benchmarks, one module a command."""
