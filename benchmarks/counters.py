"""What kernels do in the emulator of PTX, over arch x head_dim; a class per implementation and kind of work. Needs no GPU."""

from benchmarks.asv_classes import SWEEP_TIMEOUT, Found, benchmark_classes, swept

globals().update(benchmark_classes(__name__))


def setup_cache() -> Found:
    return swept(__name__)


setup_cache.timeout = SWEEP_TIMEOUT  # type: ignore[attr-defined]
