"""Attention of other libraries, as implementations: what ours is compared with, on the same NVFP4 data.

    sdpa-flash, sdpa-cudnn, sdpa-efficient     torch's scaled_dot_product_attention, one CUDA backend each
    flashinfer-bf16, flashinfer-fa3-bf16       FlashInfer on 16-bit K and V
    flashinfer-fp8                             FlashInfer on K and V in E4M3
    flashinfer-nvfp4-paged                     FlashInfer on the NVFP4 codes and scales themselves, in pages

All but the last read K and V that `pack` decoded from NVFP4, and pay for that in bytes. A name means one kernel: none
of them hands a problem on to another backend.
"""

from __future__ import annotations

from impls.peers.flashinfer import FlashInferBf16, FlashInferFa3, FlashInferFp8, FlashInferNvfp4
from impls.peers.sdpa import SdpaCudnn, SdpaEfficient, SdpaFlash

__all__ = ["FlashInferBf16", "FlashInferFa3", "FlashInferFp8", "FlashInferNvfp4", "SdpaCudnn", "SdpaEfficient", "SdpaFlash"]
