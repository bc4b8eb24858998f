"""The behaviours on GPU 0, for machines without pytest: python -m tests.cuda.on_gpu.

One line each; exit status 0 if all hold, 1 if one does not, 2 without a GPU or a compiler.
"""

from __future__ import annotations

import hashlib
import sys
import traceback

import torch

from impls.arch import find
from impls.cuda import nvrtc
from impls.host import gpu_here
from tests.cuda.behaviours import BEHAVIOURS, compiled


def main() -> int:
    arch, why_not = gpu_here()
    reason = why_not or (arch and nvrtc.why_not(arch))
    if arch is None or reason:
        print(f"on_gpu: {reason}", file=sys.stderr)
        return 2
    cubin = hashlib.sha256(compiled("reverse<64>", find("sm_90a")).cubin).hexdigest()
    print(f"NVRTC {nvrtc.find().release}; reverse<64> for sm_90a is cubin {cubin[:16]}")
    failed = []
    for name, behaviour in BEHAVIOURS.items():
        try:
            behaviour(torch.device("cuda", 0))
            print(f"ok    {name}", flush=True)
        except Exception:  # the others are still to be checked
            print(f"FAIL  {name}\n{traceback.format_exc()}", flush=True)
            failed.append(name)
    print(f"{arch.name}: {len(BEHAVIOURS) - len(failed)} of {len(BEHAVIOURS)} hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
