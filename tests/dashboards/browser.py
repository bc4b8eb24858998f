"""What the browser tests share: `open_and_probe` opens a page from the disk, without a network, and says what is there.

A copy of the site gets a probe: a script that waits until the page has drawn, and leaves what it sees in the page, which
Chromium prints with the rest of it.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
NARROWEST = 500
"""Pixels: Chromium's own window is never narrower, so a narrower page is shown in a frame."""

# Chromium's virtual clock runs ahead of files that are slow to be read, so a fixed delay looks too early now and then. The
# probe comes first in the page, sees each script arrive, and looks once none is missing and the page has stood still for
# a while. Each wait also spins, which lets real time pass.
PROBE = """
const arrived = new WeakSet();
for (const end of ["load", "error"]) document.addEventListener(end, ({ target }) => arrived.add(target), true);
const missing = () => [...document.scripts].some((one) => one.src && !one.src.endsWith("probe.js") && !arrived.has(one));

function whenStill(look, still = 0, size = 0, waits = 600) {
  for (let spin = 0; spin < 5e6; spin++);
  const now = document.body.innerHTML.length;
  const stood = now === size && !missing() ? still + 1 : 0;
  if (stood >= 40 || waits === 0) look();
  else setTimeout(() => whenStill(look, stood, now, waits - 1), 50);
}

addEventListener("load", () => whenStill(() => {
  const seen = JSON.stringify((() => { %s })());
  if (parent !== window) parent.postMessage(seen, "*");
  else document.body.append(Object.assign(document.createElement("pre"), { id: "probe", textContent: seen }));
}));
"""
FRAME = """<!doctype html><body style="margin: 0"><iframe src="%s" width="%d" height="3900" style="border: 0"></iframe><script>
addEventListener("message", ({ data }) =>
  document.body.append(Object.assign(document.createElement("pre"), { id: "probe", textContent: data })));
</script></body>"""
Look = Callable[..., Any]


def open_and_probe(
    site: Path, place: Path, page: str, probe: str, *, fragment: str, width: int, dark: bool, may_complain: bool
) -> Any:
    """What the JavaScript function body `probe` returns in `page`.

    Fails on any message in the browser's console, unless the page `may_complain`.
    """
    copy = shutil.copytree(site, place / "copy", dirs_exist_ok=True)
    (copy / "probe.js").write_text(PROBE % probe)
    text = (copy / page).read_text()
    (copy / page).write_text(text.replace("<head>", '<head><script src="probe.js"></script>', 1))
    address = f"{(copy / page).as_uri()}{fragment}"
    if width < NARROWEST:
        (copy / "frame.html").write_text(FRAME % (address, width))
        address = (copy / "frame.html").as_uri()
    done = subprocess.run(
        [
            str(CHROMIUM),
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--virtual-time-budget=40000"),
            f"--user-data-dir={place / 'profile'}",
            f"--window-size={max(width, NARROWEST)},4000",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            "--dump-dom",
            address,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    messages = re.findall(r".*CONSOLE.*", done.stderr)
    assert may_complain or not messages, messages
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, "the probe gave no answer"
    return json.loads(html.unescape(found[1]))


def key_of(site: Path, machine: str, order: int = 0) -> str:
    """Key of a machine's run on sm_90a, 0 the newest."""
    keys = re.findall(r'"key":"([^"]+)","machine":"([^"]+)"', (site / "data" / "sm_90a.js").read_text())
    return [key for key, name in keys if name == machine][order]
