"""asv builds commits of this tree, measures each one's own implementations, and its commands work on what came of it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from asv.results import Results

from benchmarks.asv_machine import machine_fields
from tests.benchmarks.records_made_up import environment

ROOT = Path(__file__).resolve().parent.parent.parent
PLAN = "host.TorchReferenceBf16.track_plan"
REFUSAL = """\
        if problem.head_dim == 192:
            return "this commit refuses it."
        if problem.dtype"""


class Checkout:
    """A repository with two commits of this tree; the second one refuses head dim 192."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.home = folder / "checkout", folder / "home"
        self.home.mkdir()
        machine = machine_fields("cpu-x86_64", environment())
        (self.home / ".asv-machine.json").write_text(json.dumps({"cpu-x86_64": machine, "version": 1}))
        self._copy()
        self.git("init", "-q", "-b", "main")
        self._commit("first")
        implementation = self.tree / "impls" / "torch_reference" / "__init__.py"
        text = implementation.read_text()
        assert text.count("        if problem.dtype") == 1
        implementation.write_text(text.replace("        if problem.dtype", REFUSAL))
        self._commit("second")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.tree, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def asv(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "asv", *arguments]
        variables = {**os.environ, "HOME": str(self.home)}
        return subprocess.run(command, cwd=self.tree, env=variables, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def _copy(self) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                (self.tree / name).write_bytes((ROOT / name).read_bytes())

    def _commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)


@pytest.mark.slow
def test_asv_measures_two_commits(tmp_path):
    checkout = Checkout(tmp_path)
    checked = checkout.asv("check")
    assert checked.returncode == 0, checked.stdout + checked.stderr

    ran = checkout.asv("run", "--machine", "cpu-x86_64", "--bench", PLAN, "--show-stderr", "ALL")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    params = json.loads((checkout.tree / "results" / "benchmarks.json").read_text())[PLAN]["params"]
    point = params[0].index("192") * len(params[1])
    values = {}
    for commit in checkout.git("rev-list", "HEAD").split():
        (path,) = (checkout.tree / "results" / "cpu-x86_64").glob(f"{commit[:8]}-virtualenv-*.json")
        values[commit] = Results.load(str(path)).get_result_value(PLAN, params)
    second, first = values.values()
    assert all(0 < value < 1 for value in first)
    assert [math.isnan(value) for value in second].index(True) == point  # the commit's own code, not the checkout's

    journal = [sys.executable, "nvfp4bench.py", "run", "--cpu", "--cell", "host/torch-reference-bf16/*/kv1024"]
    subprocess.run(journal, cwd=checkout.tree, check=True, capture_output=True)
    compared = checkout.asv("compare", "HEAD~1", "HEAD", "--machine", "cpu-x86_64")
    assert compared.returncode == 0, compared.stderr
    assert f"{PLAN}(128, 1024) [cpu-x86_64/virtualenv-py" in compared.stdout
    published = checkout.asv("publish")
    assert published.returncode == 0, published.stdout + published.stderr
    index = json.loads((checkout.tree / ".asv" / "html" / "index.json").read_text())
    assert PLAN in index["benchmarks"]
    assert "host.TorchReferenceBf16.track_call" in index["benchmarks"]

    continued = checkout.asv("continuous", "--machine", "cpu-x86_64", "--bench", PLAN, "--factor", "1000", "HEAD~1", "HEAD")
    assert continued.returncode == 0, continued.stdout + continued.stderr
