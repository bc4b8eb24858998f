"""What CUDA kernels need whatever language they are written in."""
