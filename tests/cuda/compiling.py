"""Small CUDA sources, and a process that compiles one."""

from __future__ import annotations

import sys
from pathlib import Path

from impls.arch import find
from impls.cuda.compiler import compile_kernel

HEADER = """#pragma once
#include <cuda_fp16.h>
__device__ inline float scaled(float x) { return __half2float(__float2half(x)) * FACTOR; }
"""
SOURCE = """#include "scaled.cuh"
#include "scaled.cuh"  // twice: the guard holds
template <int N>
__global__ void reverse(float* x, int n) {
  __shared__ float tile[N];
  tile[threadIdx.x] = scaled(x[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x < n) x[threadIdx.x] = tile[N - 1 - threadIdx.x];
}
extern "C" __global__ void gather(const float* x, int* at, float* y) {
  float kept[100];
  for (int i = 0; i < 100; i++) kept[i] = x[i];
  for (int i = 0; i < 100; i++) y[i] = kept[at[i]];
}
"""
MACROS = {"FACTOR": 3}
HUNGRY = """
template <int N>
__global__ void hungry(float* x) {
  float kept[N];
  for (int i = 0; i < N; i++) kept[i] = x[i * blockDim.x + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < N; i++) x[(N - 1 - i) * blockDim.x + threadIdx.x] = kept[i];
}
"""
"""Takes about 3 * N registers, and spills what is beyond 255."""


def write_source(folder: Path, text: str = SOURCE, header: str = HEADER) -> Path:
    """A source with its header in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scaled.cuh").write_text(header)
    path = folder / "reverse.cu"
    path.write_text(text)
    return path


if __name__ == "__main__":  # SOURCE CACHE: compile and say which cubin came of it
    import hashlib

    made = compile_kernel(Path(sys.argv[1]), "reverse<64>", find("sm_90a"), MACROS, folder=Path(sys.argv[2]))
    print(hashlib.sha256(made.cubin).hexdigest())
