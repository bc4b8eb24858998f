"""The machine: warps with a program counter per lane, memory spaces, barriers and asynchronous copies, executed in step."""
