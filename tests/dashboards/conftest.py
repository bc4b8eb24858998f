from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nvfp4bench import main
from tests.dashboards.browser import Look, open_and_probe
from tests.dashboards.synthetic import everything


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of several machines; a test that changes them works on a copy."""
    return everything(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="session")
def site(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of `results`."""
    out = tmp_path_factory.mktemp("site")
    assert main(["dashboard", "--results", str(results), "--out", str(out)]) == 0
    return out


@pytest.fixture
def look(site: Path, tmp_path: Path) -> Look:
    """`look(page, probe)` opens a page of `site` in Chromium; see `open_and_probe`."""

    def see(page: str, probe: str, *, of: Path = site, **changes: Any) -> Any:
        usual = {"fragment": "", "width": 1280, "dark": False, "may_complain": False}
        return open_and_probe(of, tmp_path, page, probe, **(usual | changes))

    return see
