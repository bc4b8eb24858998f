"""Synchronisation: mbarrier, clusters, fences, launch control. PTX ISA, "Parallel Synchronization and Communication"."""

from __future__ import annotations

from impls.isa.catalogue import SOFTWARE, Family

_SCOPES = (".cta", ".cluster", ".gpu", ".sys")
_BARRIER = r"SYNCS|ATOMS\.ARRIVE"


def _arrive(op: str, semantics: str, scope: str, space: str) -> str:
    if space == ".shared::cluster":  # a remote arrival returns no state
        return f"mbarrier.{op}{semantics}{scope}{space}.b64 _, [$in(b32)], $in(b32);"
    return f"mbarrier.{op}{semantics}{scope}{space}.b64 $out(b64), [$in(b32)], $in(b32);"


def _wait(op: str, semantics: str, scope: str, form: str) -> str:
    by, hint = form.split("+")
    parity, state = (".parity", "$in(b32)") if by == "parity" else ("", "$in(b64)")
    suspend = ", $in(b32)" if hint == "timed" else ""
    return f"mbarrier.{op}{parity}{semantics}{scope}.shared::cta.b64 $out(pred), [$in(b32)], {state}{suspend};"


def _transaction(op: str, scope: str, space: str) -> str:
    return f"mbarrier.{op}.relaxed{scope}{space}.b64 [$in(b32)], $in(b32);"


def _cluster_arrive(semantics: str, aligned: str) -> str:
    return f"barrier.cluster.arrive{semantics}{aligned};"


def _cluster_wait(semantics: str, aligned: str) -> str:
    return f"barrier.cluster.wait{semantics}{aligned};"


def _fence(semantics: str, scope: str) -> str:
    return f"fence{semantics}{scope};"


def _tensormap_fence(semantics: str, scope: str) -> str:
    operands = " [$in(b64)], 128" if semantics == "acquire" else ""
    return f"fence.proxy.tensormap::generic.{semantics}{scope}{operands};"


def _try_cancel(multicast: str) -> str:
    return (
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
        f"{multicast}.b128 [$in(b32)], [$in(b32)];"
    )


def _query_cancel(query: str) -> str:
    if query == "is_canceled":
        return "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 $out(pred), $in(b128);"
    if query == "get_first_ctaid":
        return "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 $out(b32*4), $in(b128);"
    return f"clusterlaunchcontrol.query_cancel.{query}.b32.b128 $out(b32), $in(b128);"


FAMILIES = (
    Family("mbarrier.init", {}, lambda: "mbarrier.init.shared::cta.b64 [$in(b32)], $in(b32);", r"SYNCS"),
    Family("mbarrier.inval", {}, lambda: "mbarrier.inval.shared::cta.b64 [$in(b32)];", r"SYNCS"),
    Family(
        "mbarrier.arrive",
        {
            "op": ("arrive", "arrive.expect_tx", "arrive_drop", "arrive_drop.expect_tx", "arrive.noComplete"),
            "semantics": (".release", ".relaxed"),
            "scope": (".cta", ".cluster"),
            "space": (".shared::cta", ".shared::cluster"),
        },
        _arrive,
        _BARRIER,
    ),
    Family(
        "mbarrier.wait",
        {
            "op": ("test_wait", "try_wait"),
            "semantics": ("", ".acquire", ".relaxed"),
            "scope": ("", ".cta", ".cluster"),
            "form": ("state+plain", "parity+plain", "state+timed", "parity+timed"),
        },
        _wait,
        r"SYNCS",
    ),
    Family(
        "mbarrier.tx",
        {"op": ("expect_tx", "complete_tx"), "scope": (".cta", ".cluster"), "space": (".shared::cta", ".shared::cluster")},
        _transaction,
        _BARRIER,
    ),
    Family("mbarrier.pending_count", {}, lambda: "mbarrier.pending_count.b64 $out(b32), $in(b64);", SOFTWARE),
    Family(
        "barrier.cluster.arrive",
        {"semantics": ("", ".release", ".relaxed"), "aligned": ("", ".aligned")},
        _cluster_arrive,
        r"UCGABAR_ARV",
    ),
    Family(
        "barrier.cluster.wait", {"semantics": ("", ".acquire"), "aligned": ("", ".aligned")}, _cluster_wait, r"UCGABAR_WAIT"
    ),
    Family(
        "barrier.cta.red",
        {"op": ("popc.u32", "and.pred", "or.pred")},
        lambda op: f"barrier.cta.red.aligned.{op} {'$out(b32)' if op.startswith('popc') else '$out(pred)'}, 0, $in(pred);",
        r"BAR\.RED",
    ),
    Family(
        "cluster/entry",
        {"size": ("1", "2", "4", "8", "16")},
        lambda size: "barrier.cluster.arrive; barrier.cluster.wait;",
        r"UCGABAR",
        ".explicitcluster .reqnctapercluster {size}, 1, 1",
    ),
    Family(
        "mapa",
        {"space": ("", ".shared::cluster")},
        lambda space: (
            f"mapa{space}.{'u32' if space else 'u64'} {'$out(b32), $in(b32)' if space else '$out(b64), $in(b64)'}, $in(b32);"
        ),
        SOFTWARE,
    ),
    Family(
        "getctarank",
        {"space": ("", ".shared::cluster")},
        lambda space: f"getctarank{space}.{'u32' if space else 'u64'} $out(b32), {'$in(b32)' if space else '$in(b64)'};",
        SOFTWARE,
    ),
    Family(
        "cluster/register",
        {"name": ("clusterid.x", "nclusterid.x", "cluster_ctaid.x", "cluster_nctaid.x", "cluster_ctarank", "cluster_nctarank")},
        lambda name: f"mov.u32 $out(b32), %{name};",
        r"S2U?R",
    ),
    Family(
        "elect.sync",
        {"mask": ("-1", "register")},
        lambda mask: f"elect.sync $out(b32)|$out(pred), {'-1' if mask == '-1' else '$in(b32)'};",
        r"ELECT",
    ),
    Family("griddepcontrol", {"op": ("launch_dependents", "wait")}, lambda op: f"griddepcontrol.{op};", r"PREEXIT|ACQBULK"),
    Family(
        "setmaxnreg",
        {"op": ("inc", "dec"), "count": ("24", "40", "232", "240", "256")},
        lambda op, count: f"setmaxnreg.{op}.sync.aligned.u32 {count};",
        r"USETMAXREG",
        ".reqntid 256 .maxnreg 128",
    ),
    Family(
        "fence",
        {"semantics": (".sc", ".acq_rel", ".acquire", ".release"), "scope": _SCOPES},
        _fence,
        r"MEMBAR|FENCE|ERRBAR|CCTL",
    ),
    Family(
        "fence.proxy",
        {"kind": ("alias", "async", "async.global", "async.shared::cta", "async.shared::cluster")},
        lambda kind: f"fence.proxy.{kind};",
        r"FENCE|MEMBAR",
    ),
    Family(
        "fence.proxy.tensormap",
        {"semantics": ("acquire", "release"), "scope": _SCOPES},
        _tensormap_fence,
        r"FENCE|MEMBAR|CCTL|UTMACCTL",
    ),
    Family("fence.mbarrier_init", {}, lambda: "fence.mbarrier_init.release.cluster;", r"FENCE|MEMBAR"),
    Family(
        "fence.sync_restrict",
        {"form": ("acquire.sync_restrict::shared::cluster", "release.sync_restrict::shared::cta")},
        lambda form: f"fence.{form}.cluster;",
        r"FENCE|MEMBAR|CCTL|ERRBAR",
    ),
    Family(
        "fence.proxy.async::generic",
        {"form": ("acquire.sync_restrict::shared::cluster", "release.sync_restrict::shared::cta")},
        lambda form: f"fence.proxy.async::generic.{form}.cluster;",
        r"FENCE|MEMBAR",
    ),
    Family("clusterlaunchcontrol.try_cancel", {"multicast": ("", ".multicast::cluster::all")}, _try_cancel, r"UGETNEXTWORKID"),
    Family(
        "clusterlaunchcontrol.query_cancel",
        {"query": ("is_canceled", "get_first_ctaid", "get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z")},
        _query_cancel,
        SOFTWARE,
    ),
    Family("nanosleep", {}, lambda: "nanosleep.u32 $in(b32);", r"NANOSLEEP"),
)
