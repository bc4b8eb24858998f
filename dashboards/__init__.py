"""Results made into static HTML. Reads journals, committed probe results (`impls.isa`) and `impls.arch`, bounds counters by
`impls.cuda.emulator.counting.bounds`, and reads nothing else."""
