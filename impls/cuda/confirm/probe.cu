// A kernel around PTX of a probe: each thread has INPUTS words of its own to read and OUTPUTS words of its own to write, and
// each warp SHARED_BYTES of shared memory. BODY is the PTX; impls/cuda/confirm/probe.py writes it.

extern "C" __global__ void probe(const unsigned* inputs, unsigned* outputs) {
  __shared__ __align__(128) unsigned char tile[SHARED_BYTES * 4];
  const size_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned of_warp = __cvta_generic_to_shared(tile) + threadIdx.x / 32 * SHARED_BYTES;
  asm volatile(BODY ::"l"(inputs + thread * INPUTS), "l"(outputs + thread * OUTPUTS), "r"(of_warp) : "memory");
}
