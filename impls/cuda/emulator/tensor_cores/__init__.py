"""Tensor cores as pure functions: the arithmetic of mma.sync, its fragments, and what ldmatrix and its kin move."""
