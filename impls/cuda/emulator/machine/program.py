"""A function of a module, ready to execute: variables have addresses, instructions are steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from impls.cuda.emulator.errors import BadLaunch, EmulationError, Unknown
from impls.cuda.emulator.machine.binding import Binder, Control, Either, Step, full, put
from impls.cuda.emulator.machine.fronts import Front
from impls.cuda.emulator.machine.memory import GlobalMemory
from impls.cuda.emulator.machine.rules import rule_of
from impls.cuda.emulator.machine.state import At, Loaded, State
from impls.cuda.emulator.machine.steps import access, asynchronous, atomics, control, cross_lane, matrices, scalar, synchronise
from impls.cuda.emulator.ptx.flow import possibly_undefined
from impls.cuda.emulator.ptx.roles import reads, writes
from impls.cuda.emulator.ptx.syntax import Address, Function, Instruction, Module, Symbol, Variable

Maker = Callable[[Binder, int], Step]


def _plain(make: Callable[[Binder], Step]) -> Maker:
    return lambda binder, pc: make(binder)


STEPS: Mapping[str, Maker] = {
    "ld": access.load,
    "ldu": access.load,
    "st": access.store,
    "atom": atomics.atomic,
    "red": atomics.atomic,
    "cp": asynchronous.copy,
    "mov": _plain(scalar.move),
    "cvta": _plain(scalar.address_space),
    "isspacep": _plain(scalar.in_space),
    "shfl": _plain(cross_lane.shuffle),
    "vote": _plain(cross_lane.vote),
    "match": _plain(cross_lane.match),
    "redux": _plain(cross_lane.reduce),
    "elect": _plain(cross_lane.elect),
    "activemask": _plain(cross_lane.active_mask),
    "fence": _plain(synchronise.fence),
    "membar": _plain(synchronise.fence),
    "griddepcontrol": _plain(synchronise.dependent_launch),
    "setmaxnreg": _plain(synchronise.nothing),
    "nanosleep": _plain(synchronise.nothing),
    "prefetch": _plain(synchronise.nothing),
    "prefetchu": _plain(synchronise.nothing),
    "pmevent": _plain(synchronise.nothing),
    "mma": matrices.multiply,
    "ldmatrix": matrices.load,
    "stmatrix": matrices.store,
    "movmatrix": matrices.transpose,
}
"""What is neither arithmetic nor ends a run of instructions, by opcode."""
CONTROLS: Mapping[str, Callable[[Binder, int], Control]] = {
    "bra": control.branch,
    "brx": control.indexed,
    "ret": control.leave,
    "exit": control.leave,
    "trap": control.trap,
    "bar": synchronise.barrier,
    "barrier": synchronise.barrier,
}
MISFITS = (LookupError, ValueError, OverflowError, StopIteration)
"""What Python raises at operands that are not the instruction's: too few, too many, of another kind."""


@dataclass(frozen=True)
class Code:
    """One step for each instruction."""

    steps: list[Either]
    ends: list[int]
    """For each instruction, and the place after the last, the first from it on that ends a run: a control, one that is jumped
    to, or the place after the last."""
    controls: frozenset[int]


def load(
    module: Module, entry: str, dynamic_bytes: int, arguments: list[bytes], memory: GlobalMemory, shared_limit: int | None
) -> Loaded:
    """Give the variables of `entry` addresses. Raises BadLaunch if the launch does not fit the kernel."""
    function = module.functions.get(entry)
    if function is None or not function.is_entry:
        known = ", ".join(name for name, each in module.functions.items() if each.is_entry) or "none"
        raise BadLaunch(f"the module has no entry called {entry}; its entries: {known}")
    if not function.body:
        raise BadLaunch(f"{entry} has no instructions")
    if len(arguments) != len(function.parameters):
        raise BadLaunch(f"{entry} has {len(function.parameters)} parameters, and {len(arguments)} arguments came")
    for parameter, given in zip(function.parameters, arguments, strict=True):
        if parameter.bytes != len(given):
            raise BadLaunch(f"parameter {parameter.name} of {entry} has {parameter.bytes} B, and the argument {len(given)} B")
    symbols: dict[str, int] = {}
    tops = {"shared": 0, "local": 0}
    dynamic: list[Variable] = []
    used = set(_names(function))
    for variable in (*module.globals.values(), *function.variables.values()):
        if variable.space == "shared" and variable.name not in used:
            continue  # of another kernel of the module
        if variable.space in ("global", "const"):
            contents = variable.initial or bytes(variable.bytes)
            contents = contents.ljust(variable.bytes, b"\0")
            symbols[variable.name] = memory.variable(module, contents, variable.name)
        elif variable.count is None:
            dynamic.append(variable)
        elif variable.space in tops:
            tops[variable.space] = _place(variable, tops[variable.space], symbols)
    shared = tops["shared"]
    for variable in dynamic:  # they all name what the launch adds
        start = _up(shared, max(variable.alignment, 16))
        symbols[variable.name] = start
    if dynamic:
        shared = max(symbols[variable.name] for variable in dynamic)
    shared += dynamic_bytes
    if shared_limit is not None and shared > shared_limit:
        raise BadLaunch(f"{entry} wants {shared:,} B of shared memory; a block has {shared_limit:,} B on {module.target}")
    parameters = {parameter.name: given for parameter, given in zip(function.parameters, arguments, strict=True)}
    return Loaded(module, function, symbols, shared, dynamic_bytes, tops["local"], parameters)


def code(state: State) -> Code:
    """The steps of the function that `state`, before it begins, is about to execute, bound to its registers."""
    function = state.loaded.function
    for name in undefined_registers(function):
        state.defined[name] = np.zeros_like(state.registers[name], bool)
    steps: list[Either] = []
    controls = set()
    for pc, instruction in enumerate(function.body):
        try:
            step, is_control = _step(state, instruction, pc)
        except EmulationError as error:
            error.args = (f"PTX line {instruction.line}: {error}: {instruction.text}",)
            raise
        except MISFITS as error:
            raise Unknown(
                f"PTX line {instruction.line}: the operands of this are not understood: {instruction.text}"
            ) from error
        names = [name for name in reads(instruction) if name in state.defined]
        if names:
            step = _follows(state, instruction, names, step)
        if is_control:
            controls.add(pc)
        steps.append(step)
    return Code(steps, _ends(function, controls), frozenset(controls))


def _step(state: State, instruction: Instruction, pc: int) -> tuple[Either, bool]:
    binder = Binder(state, instruction)
    opcode = instruction.opcode
    binder.rests_on(rule_of(opcode, instruction.modifiers))
    if opcode == "mbarrier":
        return synchronise.mbarrier(binder, pc), instruction.modifiers[0] in synchronise.WAITS
    if opcode in ("bar", "barrier") and instruction.modifiers[0] == "warp":
        return cross_lane.meet(binder), False
    if opcode in CONTROLS:
        return CONTROLS[opcode](binder, pc), True
    if opcode in STEPS:
        return STEPS[opcode](binder, pc), False
    return scalar.arithmetic(binder), False


def undefined_registers(function: Function) -> set[str]:
    """Registers that some path reads before it writes them, and those that are computed of such registers alone.

    Compilers do read registers that they never wrote, where the result does not depend on it: in a permutation that takes no
    byte of it, in half of a pair. So what is computed of one that was written counts as written.
    """
    found = {name for _, name in possibly_undefined(function)}
    grows = bool(found)
    while grows:
        grows = False
        for instruction in function.body:
            names = reads(instruction)
            if _computes(instruction) and names and found.issuperset(names) and not found.issuperset(writes(instruction)):
                found.update(writes(instruction))
                grows = True
    return found


def _computes(instruction: Instruction) -> bool:
    """Whether all that it does is to write registers."""
    return instruction.opcode not in STEPS.keys() - {"mov", "cvta", "isspacep"} and instruction.opcode not in (
        *CONTROLS,
        "mbarrier",
    )


def _follows(state: State, instruction: Instruction, names: list[str], step: Either) -> Either:
    """The same step, which knows that `names` may never have been written: what is computed of them alone is not either, and
    an address, a predicate or a value that leaves the thread has to be."""
    binder = Binder(state, instruction)
    only = _computes(instruction) and set(names) == set(reads(instruction))
    guards = {instruction.predicate.register.name} if instruction.predicate else set()
    needed = [name for name in names if not _computes(instruction) or name in guards]
    results = [name for name in writes(instruction) if name in state.defined] if only else []

    def follows(front: Front) -> list[Front] | None:
        active = full(binder.mask(front), front).copy()  # the step may write the predicate that it is a view of
        for name in needed:
            missing = active & ~state.defined[name][front.rows]
            if missing.any():
                row, lane = (int(i) for i in np.argwhere(missing)[0])
                raise At(f"register {name} is used before it is written", row, lane)
        known = np.logical_or.reduce([state.defined[name][front.rows] for name in names])
        became = step(front)
        for name in results:
            put(state.defined[name], front.rows, active, known)
        return became

    return follows


def _ends(function: Function, controls: set[int]) -> list[int]:
    stops = controls | set(function.labels.values()) | {len(function.body)}
    end = len(function.body)
    ends = [end] * (end + 1)
    for pc in reversed(range(len(function.body))):
        ends[pc] = pc if pc in controls else end
        if pc in stops:
            end = pc
    return ends


def _names(function: Function) -> Iterator[str]:
    """Of the variables that its instructions name."""
    for instruction in function.body:
        for operand in instruction.operands:
            base = operand.base if isinstance(operand, Address) else operand
            if isinstance(base, Symbol):
                yield base.name


def _place(variable: Variable, top: int, symbols: dict[str, int]) -> int:
    start = _up(top, variable.alignment)
    symbols[variable.name] = start
    return start + variable.bytes


def _up(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
