"""Which instruction each target's ptxas accepts, and the machine code it becomes: `nvfp4bench isa`.

    catalogue   families of instructions, expanded to one minimal PTX program each
    toolchain   the ptxas releases and the disassembler found here
    assemble    many programs at once, each with the verdict it would have got alone; diagnostics and sass read the answers
    probe       every program on every target of one release, in parallel, from a cache where nothing changed
    limits      resource limits that a release enforces, found by bisection
    result      the outcome, as a value and as the file that is committed in probes/
    report      tables, JSON, differences between two releases
    divide      the architectural divide, each claim with the programs that show it

Acceptance by the assembler is not execution: nothing here ran on a GPU.
"""
