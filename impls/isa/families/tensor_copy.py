"""Copies through a tensor map (TMA). PTX ISA, "cp.async.bulk.tensor", "tensormap.replace"."""

from __future__ import annotations

from impls.isa.catalogue import SOFTWARE, Family

_DIMS = ("1d", "2d", "3d", "4d", "5d")
_LOAD_MODES = ("tile", "tile::gather4", "im2col", "im2col::w", "im2col::w::128")
_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


def _map(dims: str, mode: str) -> str:
    """The tensor map and its coordinates; gather4 and scatter4 take a column and four rows."""
    count = 5 if mode.endswith("4") else int(dims[0])
    return f"[$in(b64), $in(b32*{count})]"


def _offsets(dims: str, mode: str) -> str:
    """im2col takes an offset for each spatial dimension; its w forms take two."""
    if mode == "im2col":
        return f", $in(b16*{max(1, int(dims[0]) - 2)})"
    return ", $in(b16*2)" if mode.startswith("im2col::w") else ""


def _load(dims: str, mode: str, dst: str, cta: str, multicast: str = "") -> str:
    mask = ", $in(b16)" if multicast else ""
    return (
        f"cp.async.bulk.tensor.{dims}.{dst}.global.{mode}.mbarrier::complete_tx::bytes{multicast}{cta} "
        f"[$in(b32)], {_map(dims, mode)}, [$in(b32)]{_offsets(dims, mode)}{mask};"
    )


def _multicast(dims: str, mode: str, dst: str, cta: str) -> str:
    return _load(dims, mode, dst, cta, ".multicast::cluster")


def _hinted(dims: str, dst: str) -> str:
    return (
        f"cp.async.bulk.tensor.{dims}.{dst}.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        f"[$in(b32)], {_map(dims, 'tile')}, [$in(b32)], $in(b64);"
    )


def _store(dims: str, mode: str) -> str:
    return f"cp.async.bulk.tensor.{dims}.global.shared::cta.{mode}.bulk_group {_map(dims, mode)}, [$in(b32)];"


def _reduce(dims: str, mode: str, op: str) -> str:
    return f"cp.reduce.async.bulk.tensor.{dims}.global.shared::cta.{op}.{mode}.bulk_group {_map(dims, mode)}, [$in(b32)];"


def _prefetch(dims: str, mode: str) -> str:
    return f"cp.async.bulk.prefetch.tensor.{dims}.L2.global.{mode} {_map(dims, mode)}{_offsets(dims, mode)};"


_MAP_FIELDS = {  # field: register type of its value, an immediate where ptxas wants one
    "global_address": "b64 $in(b64)",
    "rank": "b32 $in(b32)",
    "box_dim": "b32 0, $in(b32)",
    "global_dim": "b32 0, $in(b32)",
    "global_stride": "b64 0, $in(b64)",
    "element_stride": "b32 0, $in(b32)",
    "elemtype": "b32 6",
    "interleave_layout": "b32 0",
    "swizzle_mode": "b32 3",
    "swizzle_atomicity": "b32 1",
    "fill_mode": "b32 0",
}


def _replace(field: str, space: str) -> str:
    dtype, value = _MAP_FIELDS[field].split(" ", 1)
    address = "$in(b32)" if space == "shared::cta" else "$in(b64)"
    return f"tensormap.replace.tile.{field}.{space}.b1024.{dtype} [{address}], {value};"


FAMILIES = (
    *(
        Family(
            f"cp.async.bulk.tensor/{name}",
            {
                "dims": _DIMS,
                "mode": _LOAD_MODES,
                "dst": ("shared::cluster", "shared::cta"),
                "cta": ("", ".cta_group::1", ".cta_group::2"),
            },
            ptx,
            native,
        )
        for name, ptx, native in (("load", _load, r"UTMALDG"), ("multicast", _multicast, r"UTMALDG.*MULTICAST"))
    ),
    Family("cp.async.bulk.tensor/load-hinted", {"dims": _DIMS, "dst": ("shared::cluster", "shared::cta")}, _hinted, r"UTMALDG"),
    Family(
        "cp.async.bulk.tensor/store", {"dims": _DIMS, "mode": ("tile", "tile::scatter4", "im2col_no_offs")}, _store, r"UTMASTG"
    ),
    Family(
        "cp.reduce.async.bulk.tensor",
        {"dims": _DIMS, "mode": ("tile", "im2col_no_offs"), "op": _REDUCTIONS},
        _reduce,
        r"UTMAREDG",
    ),
    Family("cp.async.bulk.prefetch.tensor", {"dims": _DIMS, "mode": _LOAD_MODES}, _prefetch, r"UTMAPF"),
    Family("prefetch.tensormap", {}, lambda: "prefetch.tensormap [$in(b64)];", r"UTMACCTL"),
    Family(
        "tensormap.replace",
        {"field": tuple(_MAP_FIELDS), "space": ("global", "shared::cta")},
        _replace,
        SOFTWARE,
    ),
    Family(
        "tensormap.cp_fenceproxy",
        {"scope": ("cta", "cluster", "gpu", "sys")},
        lambda scope: (
            f"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{scope}.sync.aligned "
            "[$in(b64)], [$in(b32)], 128;"
        ),
        SOFTWARE,
    ),
)
