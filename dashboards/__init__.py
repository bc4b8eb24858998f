"""Results made into static HTML. Reads journals and `impls.arch`, and nothing else of the project."""
