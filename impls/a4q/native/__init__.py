"""`a4q` where tensor cores take NVFP4 themselves (sm_120a, sm_121a): K is multiplied as it lies in memory."""
