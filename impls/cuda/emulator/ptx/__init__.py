"""PTX as text to a typed syntax tree, and what its control flow says before anything runs."""
