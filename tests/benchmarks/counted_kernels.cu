extern "C" __global__ void counted(float* out, const float* in) {
  __shared__ float tile[64];
  float exponential;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(in[32 * blockIdx.x + threadIdx.x]));
  tile[2 * threadIdx.x] = exponential;
  __syncthreads();
  out[32 * blockIdx.x + threadIdx.x] = tile[2 * (threadIdx.x ^ 1)];
}

// Reads what `counted` wrote, and past the end of the words that a block declares.
extern "C" __global__ void outside(float* out, const float* in) {
  extern __shared__ float none[];
  out[threadIdx.x] = none[threadIdx.x];
}
