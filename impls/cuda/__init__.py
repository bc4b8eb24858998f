"""What CUDA kernels need whatever language they are written in, and how those in CUDA C++ are compiled."""
