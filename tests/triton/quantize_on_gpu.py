"""The quantiser on GPU 0: its bits and its speed. python -m tests.triton.quantize_on_gpu [bits|large|speed ...]

    bits     every case, and the corrected quotients, against the CPU
    large    tensors of more than 2^31 elements, against torch on the same GPU
    speed    bytes of x read in a second over those that a copy of the same run moves (reads and writes), median of 20 calls
             each; floors for bfloat16: 50 % with the global scale given, 30 % with it searched for

One line each; exit status 0 if all hold, 1 if one does not, 2 without a GPU.
"""

from __future__ import annotations

import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator

import torch

from impls.host import gpu_here
from impls.nvfp4 import quantize
from impls.triton.quantize import Quantizer
from tests.triton.division import wrong_quotients
from tests.triton.quantize_cases import CASES, assert_same_bits, check

DEVICE = torch.device("cuda", 0)
FLOORS = {True: 0.5, False: 0.3}  # by whether the global scale is given
CALLS = 20
TOKENS, HEADS = 2**17, 16


def quotients(bits: int, corrections: int) -> Callable[[], None]:
    def run() -> None:
        assert wrong_quotients(bits, corrections, DEVICE) == 0

    return run


def graph_reads_anew() -> None:
    """A captured call rounds what x and the given global scale hold when it is replayed."""
    for given in (None, torch.full((), 0.01, device=DEVICE)):
        for axis in (-1, -2):
            x = torch.zeros(3, 80, 64, dtype=torch.bfloat16, device=DEVICE)
            quantizer = Quantizer(x, block_axis=axis, global_scale=given)
            quantizer()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                quantizer()
            for scale in (100.0, 0.5):
                x.normal_().mul_(scale)
                if given is not None:
                    given.fill_(scale / 1000)
                graph.replay()
                assert_same_bits(
                    quantizer.result, quantize(x.cpu(), block_axis=axis, global_scale=None if given is None else given.cpu())
                )


def large(name: str) -> None:
    """More than 2^31 elements, or offsets. The parts that torch is given have the global scale of the whole."""
    g = torch.Generator(DEVICE).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=g, dtype=torch.bfloat16, device=DEVICE)

    if name == "rows":
        x, axis = normal(2**25 + 17, 64), -1
    elif name == "gaps":
        x, axis = normal(2**24 + 5, 160)[:, 16:144], -1
    elif name == "columns":
        x, axis = normal(9, 2**18 + 5, 1024), -2
    else:
        raise ValueError(name)
    x.view(-1)[-1:].fill_(77.0) if x.is_contiguous() else x[-1, -1].fill_(77.0)  # the largest is the last
    got = quantize(x, block_axis=axis, check=False)
    assert float(got.global_scale) == float(torch.tensor(77.0) / 2688.0)
    step = 2**20 if axis == -1 else 1
    for start in range(0, x.shape[0], step):
        part = slice(start, start + step)
        wanted = quantize(x[part], block_axis=axis, global_scale=got.global_scale, check=False, backend="torch")
        assert torch.equal(got.codes[part], wanted.codes), f"codes of part {start}"
        assert torch.equal(got.scales[part].view(torch.uint8), wanted.scales.view(torch.uint8)), f"scales of part {start}"


def seconds(call: Callable[[], object]) -> float:
    """Median over CALLS calls, by events around each; the tensors are far larger than the L2."""
    for _ in range(3):
        call()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(CALLS)]
    for start, stop in events:
        start.record()
        call()
        stop.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(stop) for start, stop in events) / 1e3


def speed() -> bool:
    """Print the table. Returns whether every floor holds."""
    source = torch.randn(TOKENS * HEADS * 128, dtype=torch.bfloat16, device=DEVICE)
    target = torch.empty_like(source)
    # the driver's copy and a kernel's: the faster one is what this GPU can do
    copying = min(seconds(lambda: target.copy_(source)), seconds(lambda: torch.mul(source, 1.0, out=target)))
    copy = 2 * source.numel() * source.element_size() / copying
    print(f"copy: {copy / 1e9:.0f} GB/s, read and written", flush=True)
    holds = True
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for dim in (64, 128, 256, 512):
            shape = (1, HEADS, TOKENS * 128 // dim, dim)
            x = source.view(shape).to(dtype)
            with_gaps = torch.empty(1, shape[2], HEADS + 1, dim, dtype=dtype, device=DEVICE).transpose(1, 2)[:, :HEADS]
            with_gaps.copy_(x)
            for layout, tensor, axis in (("rows", x, -1), ("rows with gaps", with_gaps, -1), ("columns", x, -2)):
                for given in (True, False):
                    scale = torch.full((), 0.002, device=DEVICE) if given else None
                    quantizer = Quantizer(tensor, block_axis=axis, global_scale=scale)
                    rate = x.numel() * x.element_size() / seconds(quantizer)
                    floor = FLOORS[given] if dtype == torch.bfloat16 else None
                    below = floor is not None and rate < floor * copy
                    holds = holds and not below
                    name = str(dtype).removeprefix("torch.")
                    what = f"{name:9} head dim {dim:3}  {layout:15} {'given' if given else 'searched':9}"
                    limit = "" if floor is None else f"  floor {floor:.0%}{'  BELOW' if below else ''}"
                    print(f"{what} {rate / 1e9:6.0f} GB/s  {rate / copy:6.1%}{limit}", flush=True)
    return holds


def checks(wanted: list[str]) -> Iterator[tuple[str, Callable[[], None]]]:
    if "bits" in wanted:
        for name, case in CASES.items():
            yield name, lambda case=case: check(case, DEVICE)
        for bits, corrections in ((8, 1), (11, 1), (24, 2)):
            yield f"quotients-of-{bits}-bits", quotients(bits, corrections)
        yield "graph-reads-anew", graph_reads_anew
    if "large" in wanted:
        for name in ("rows", "gaps", "columns"):
            yield f"large-{name}", lambda name=name: large(name)


def main(words: list[str]) -> int:
    arch, why_not = gpu_here()
    if arch is None:
        print(f"quantize_on_gpu: {why_not}", file=sys.stderr)
        return 2
    wanted = words or ["bits", "large", "speed"]
    failed, count = [], 0
    for name, run in checks(wanted):
        count += 1
        start = time.perf_counter()
        try:
            run()
            torch.cuda.synchronize()
            said = "ok  "
        except Exception:  # every other name is still to be checked
            failed.append(name)
            said = f"FAIL\n{traceback.format_exc()}"
        print(f"{said}  {name}  {time.perf_counter() - start:.1f} s", flush=True)
    print(f"{arch.name}: {count - len(failed)} of {count} hold" + (f"; not {', '.join(failed)}" if failed else ""))
    fast = speed() if "speed" in wanted else True
    return 1 if failed or not fast else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
