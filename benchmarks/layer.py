"""Latency of a model's attention layer, over preset x kv_len; a class per pair of attention and projection."""

from benchmarks.asv_classes import SWEEP_TIMEOUT, Found, benchmark_classes, swept

globals().update(benchmark_classes(__name__))


def setup_cache() -> Found:
    return swept(__name__)


setup_cache.timeout = SWEEP_TIMEOUT  # type: ignore[attr-defined]
