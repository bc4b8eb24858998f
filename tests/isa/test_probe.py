"""A probe must lose nothing to a ptxas that crashes, hangs or names nobody, and must not ask twice what it knows."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from impls.isa.cache import Cache
from impls.isa.probe import Prober
from impls.isa.processes import Abandoned, Processes
from impls.isa.program import Program
from impls.isa.result import Probe
from impls.isa.toolchain import inspect_assembler
from tests.isa.fake_tools import fake_ptxas, modules_seen

PROGRAMS = tuple(Program(f"p/{n}", "p", f"op.n{n};", "OP") for n in range(8))
TARGETS = ("sm_90a", "sm_100a")


def probe(ptxas: Path, cache: Path, *, time_limit: float = 30.0, programs: tuple[Program, ...] = PROGRAMS) -> Probe:
    processes = Processes(time_limit)
    assembler = inspect_assembler(ptxas, Processes())
    prober = Prober(assembler, None, store=Cache(cache), processes=processes, jobs=2)
    return prober.probe({"group": programs}, TARGETS)


def verdicts(result: Probe) -> dict[str, str | None]:
    """{program: kind of its refusal} on the first target."""
    return {name: cells["sm_90a"].error and cells["sm_90a"].error.kind for name, cells in result.cells.items()}


REFUSES_3 = """
for number, line in enumerate(text.splitlines(), 1):
    if line == "op.n3;":
        sys.exit(f"ptxas x.ptx, line {number}; error   : Instruction 'op' not supported on .target 'sm_90a'")
"""


def test_the_refused_program_alone_is_refused(tmp_path: Path) -> None:
    result = probe(fake_ptxas(tmp_path, REFUSES_3), tmp_path / "cache")
    assert verdicts(result) == {f"p/{n}": "target" if n == 3 else None for n in range(8)}
    refusal = result.cells["p/3"]["sm_90a"].error
    assert refusal is not None
    assert refusal.text == "Instruction 'op' not supported on .target 'sm_90a'"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        ("if 'op.n5;' in text: os.kill(os.getpid(), signal.SIGSEGV)", "crash"),
        ("if 'op.n5;' in text: time.sleep(60)", "timeout"),
        ("if 'op.n5;' in text: sys.exit('ptxas fatal   : Internal error')", "other"),
        ("if 'op.n5;' in text: sys.exit(7)", "crash"),
        ("if 'op.n5;' in text: sys.exit(0)", "crash"),
    ],
)
def test_a_program_that_ptxas_dies_of_costs_no_other(tmp_path: Path, behaviour: str, kind: str) -> None:
    result = probe(fake_ptxas(tmp_path, behaviour), tmp_path / "cache", time_limit=2.0)
    assert verdicts(result) == {f"p/{n}": kind if n == 5 else None for n in range(8)}


@pytest.mark.slow
def test_what_a_timeout_had_a_part_in_is_tried_again(tmp_path: Path) -> None:
    hanging = fake_ptxas(tmp_path, f"if 'op.n5;' in text and not os.path.exists({str(tmp_path / 'well')!r}): time.sleep(60)")
    assert verdicts(probe(hanging, tmp_path / "cache", time_limit=1.0))["p/5"] == "timeout"
    (tmp_path / "well").touch()
    assert verdicts(probe(hanging, tmp_path / "cache"))["p/5"] is None


def test_a_second_probe_asks_ptxas_nothing(tmp_path: Path) -> None:
    ptxas = fake_ptxas(tmp_path, REFUSES_3)
    first = probe(ptxas, tmp_path / "cache")
    asked = len(modules_seen(tmp_path))
    assert probe(ptxas, tmp_path / "cache") == first
    assert len(modules_seen(tmp_path)) == asked


def test_a_changed_program_or_ptxas_is_asked_again(tmp_path: Path) -> None:
    ptxas = fake_ptxas(tmp_path)
    probe(ptxas, tmp_path / "cache")
    asked = len(modules_seen(tmp_path))
    changed = (Program("p/0", "p", "other;", "OP"), *PROGRAMS[1:])
    probe(ptxas, tmp_path / "cache", programs=changed)
    assert len(modules_seen(tmp_path)) == asked + len(TARGETS)
    refusing = fake_ptxas(tmp_path, REFUSES_3)
    assert verdicts(probe(refusing, tmp_path / "cache"))["p/3"] == "target"


def test_an_interrupted_probe_goes_on_where_it_was(tmp_path: Path) -> None:
    groups = {f"g{n}": (PROGRAMS[n],) for n in range(8)}
    assembler = inspect_assembler(fake_ptxas(tmp_path), Processes())

    def stop(done: int, total: int) -> None:
        if done >= 5:
            raise KeyboardInterrupt

    prober = Prober(assembler, None, store=Cache(tmp_path / "cache"), processes=Processes(), jobs=1)
    with pytest.raises(KeyboardInterrupt):
        prober.probe(groups, ["sm_90a"], stop)
    kept = len(list((tmp_path / "cache").glob("*.json")))
    assert 5 <= kept < 9
    asked = len(modules_seen(tmp_path))
    prober = Prober(assembler, None, store=Cache(tmp_path / "cache"), processes=Processes(), jobs=1)
    assert set(prober.probe(groups, ["sm_90a"]).cells) == {program.id for program in PROGRAMS}
    assert modules_seen(tmp_path)[asked:].count(1) >= 8 - kept


def test_an_interrupt_does_not_wait_for_a_hanging_ptxas(tmp_path: Path) -> None:
    processes = Processes(time_limit=120.0)
    ptxas = fake_ptxas(tmp_path, "time.sleep(120)")
    source = tmp_path / "x.ptx"
    source.write_text(".entry k")
    threading.Timer(1.0, processes.abandon).start()
    started = time.monotonic()
    with pytest.raises(Abandoned):
        processes.run([ptxas, "-arch=sm_90", source, "-o", tmp_path / "x.cubin"])
    assert time.monotonic() - started < 30.0
    with pytest.raises(Abandoned):
        processes.run([ptxas, "--version"])


def test_a_corrupt_cache_file_counts_as_absent(tmp_path: Path) -> None:
    ptxas = fake_ptxas(tmp_path, REFUSES_3)
    first = probe(ptxas, tmp_path / "cache")
    for path in (tmp_path / "cache").glob("*.json"):
        path.write_text('{"p/0": ')
    assert probe(ptxas, tmp_path / "cache") == first


def test_without_a_writable_cache_the_probe_works_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder would be")
    store = Cache(tmp_path / "cache")
    prober = Prober(inspect_assembler(fake_ptxas(tmp_path), Processes()), None, store=store, processes=Processes(), jobs=2)
    assert len(prober.probe({"group": PROGRAMS}, TARGETS).cells) == len(PROGRAMS)
    assert store.trouble is not None
    assert "cannot be written" in store.trouble


def test_two_writers_leave_whole_files(tmp_path: Path) -> None:
    value = {"x": "y" * 100_000}
    stores = [Cache(tmp_path), Cache(tmp_path)]

    def write(store: Cache) -> None:
        for _ in range(50):
            store.store("k", value)

    threads = [threading.Thread(target=write, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert Cache(tmp_path).load("k") in (None, value)
    assert Cache(tmp_path).load("k") == value
    assert [path.name for path in tmp_path.iterdir()] == ["k.json"]


def test_limits_are_the_largest_number_that_is_taken(tmp_path: Path) -> None:
    behaviour = """
size = re.search(r"buffer\\[(\\d+)\\]", text)
if size and int(size[1]) > 4097: sys.exit("ptxas error   : Entry function 'k' uses too much shared data")
registers = re.search(r"maxnreg (\\d+)", text)
if registers and int(registers[1]) > 77: print("ptxas warning : Too many maxnreg", file=sys.stderr)
columns = re.search(r"tcgen05.*, (\\d+);", text)
if columns and int(columns[1]) > 256: sys.exit("ptxas x.ptx, line 1; error   : value out of range")
if "reqnctapercluster" in text: sys.exit("ptxas error   : no clusters")
if ".reqntid" in text: os.kill(os.getpid(), signal.SIGSEGV)
"""
    limits = probe(fake_ptxas(tmp_path, behaviour), tmp_path / "cache").limits["sm_90a"]
    assert limits == {
        "static_shared_bytes": 4097,
        "dynamic_shared_bytes": None,
        "registers": 77,
        "tmem_columns": 256,
        "cluster_blocks": 0,
    }
