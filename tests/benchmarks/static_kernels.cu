extern "C" __global__ void tidy(float* out, int n) {
  __shared__ char tile[HEAD_DIM];
  tile[threadIdx.x] = n;
  __syncthreads();
  out[threadIdx.x] = tile[n];
}

extern "C" __global__ void spilling(float* out, int n) {
  float kept[64];
  for (int i = 0; i < 64; i++) kept[i] = out[i];
  for (int i = 0; i < 64; i++) out[i] = kept[(int)out[i + n]];
}
