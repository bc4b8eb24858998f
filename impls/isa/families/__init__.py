"""The families of the catalogue, one module for each part of the instruction set. PTX ISA sections are named beside them."""
