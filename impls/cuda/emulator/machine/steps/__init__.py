"""What each family of instructions does to the machine: one module a family, each with functions that make steps."""
