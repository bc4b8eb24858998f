"""Results made into static HTML. Reads journals, committed probe results (`impls.isa`) and `impls.arch`, and nothing else."""
