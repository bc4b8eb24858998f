"""A program that is killed while its worker hangs: run with the file for the child's ids as its argument."""

from __future__ import annotations

import sys

from impls.worker import Worker

if __name__ == "__main__":
    with Worker("tests.contract.worker_targets:behave") as worker:
        worker.call({"do": "hang", "file": sys.argv[1]}, timeout=300)
