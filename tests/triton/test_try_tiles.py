"""The tool that times other tiles: what it makes of its arguments, here and on a machine without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.try_tiles import combinations

SCRIPT = Path(__file__).parents[2] / "scripts" / "try_tiles.py"


def test_every_combination_of_the_fields_is_tried():
    assert list(combinations(["block_n=32,64", "max_registers=0,168"])) == [
        {"block_n": 32, "max_registers": None},
        {"block_n": 32, "max_registers": 168},
        {"block_n": 64, "max_registers": None},
        {"block_n": 64, "max_registers": 168},
    ]


def test_sets_of_combinations_are_tried_one_after_the_other():
    assert list(combinations(["num_warps=1,2", "/", "/", "block_n=32"])) == [
        {"num_warps": 1},
        {"num_warps": 2},
        {},
        {"block_n": 32},
    ]


def test_without_fields_the_planners_tile_is_timed():
    assert list(combinations([])) == [{}]


@pytest.mark.parametrize("word", ["blocks=32", "block_n", "block_n=", "block_n=a", "block_n=-1"])
def test_what_is_no_field_is_refused_by_name(word):
    with pytest.raises(ValueError, match="the fields are block_m, block_n"):
        list(combinations([word]))


def test_a_wrong_field_is_one_sentence_and_status_2():
    done = subprocess.run(
        [sys.executable, SCRIPT, "decode", "--head-dim", "64", "blocks=1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("try_tiles: error: 'blocks=1' is not field=number")
