"""Linear layers whose weights are NVFP4: out = x @ w^T, the other half of a model with an NVFP4 cache.

    from impls.weights.api import linear
    out = linear(x, w4)             x [..., K] bfloat16 or float16, w4 of [N, K] with blocks along K; out [..., N] in x's dtype

`impls.weights.w4a16` lists who does it. The steps are those of `impls.contract`, see `impls.weights.contract`.
"""
