"""Data as classic scripts beside the pages: Chromium lets no page at file:// fetch anything else. static/data.js loads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dashboards.rows import Row


def script(name: str, data: Any) -> bytes:
    """A script that hands `data` to the page.

    Everything beyond plain ASCII letters is escaped, and "<" too, so no text of a result can end the script.
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f"nvfp4bench.receive({json.dumps(name)}, {text});\n".encode("ascii")


def packed(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows as {"columns": names, "rows": values}: a third of the bytes of objects. data.js makes them objects again."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return {"columns": columns, "rows": [[row.get(name) for name in columns] for row in rows]}
