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
    """Rows as {"columns": names, "texts": [...], "rows": values}, a fifth of the bytes of objects; data.js undoes it.

    A column of texts has each of them once in "texts", and their places there in "rows"; any other has null in "texts".
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    texts, values = [], []
    for name in columns:
        column = [row.get(name) for row in rows]
        known = dict.fromkeys(value for value in column if value is not None)
        places = {text: place for place, text in enumerate(known)} if all(isinstance(text, str) for text in known) else None
        texts.append(None if places is None else list(places))
        values.append(column if places is None else [places.get(text) for text in column])
    return {"columns": columns, "texts": texts, "rows": [list(row) for row in zip(*values, strict=True)]}
