"""scripts/install.py: which constraint set it takes, and that a broken or repeated installation does no harm."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from scripts import install

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A copy of what the script reads, whose files a test may change."""
    root = tmp_path / "checkout"
    root.mkdir()
    for path in (*ROOT.glob("constraints*.txt"), ROOT / "pyproject.toml"):
        shutil.copy(path, root)
    monkeypatch.setattr(install, "ROOT", root)
    monkeypatch.setattr(install, "has_nvidia_driver", lambda: False)
    return root


@pytest.fixture
def environment(tmp_path):
    """A virtual environment as far as the script looks at it: a Python that runs and has pip."""
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").touch()
    write_python(folder / "bin" / "python", "exit 0")
    return folder


def write_python(path: Path, body: str) -> Path:
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def commands(monkeypatch):
    """The commands that would have been run."""
    seen: list[list[str]] = []
    monkeypatch.setattr(install, "run", lambda command, lock: seen.append(command))
    monkeypatch.setattr(install, "refusal", lambda python, lock: None)
    return seen


def install_into(environment: Path, groups=("bench",), editable=False) -> None:
    with install.locked(environment) as lock:
        install.install(environment, list(groups), editable=editable, lock=lock)


class TestChoice:
    def test_gpu_driver_takes_the_gpu_set_without_asking_pip(self):
        def never():
            raise AssertionError("pip was asked")

        assert install.choose_set(True, never)[0] == "constraints-gpu.txt"

    def test_no_driver_takes_the_cpu_set_where_pip_accepts_it(self):
        assert install.choose_set(False, lambda: None)[0] == "constraints-cpu.txt"

    def test_refused_cpu_set_falls_to_the_gpu_set_and_says_why(self):
        chosen, reason = install.choose_set(False, lambda: "torch wants another triton")
        assert chosen == "constraints-gpu.txt"
        assert "torch wants another triton" in reason

    def test_conflict_is_a_refusal(self, checkout, tmp_path):
        conflict = "echo 'ERROR: Cannot install torch and triton.' >&2; echo 'ERROR: ResolutionImpossible: see' >&2; exit 1"
        assert self.refusal(tmp_path, conflict) == "Cannot install torch and triton"

    def test_missing_build_is_a_refusal(self, checkout, tmp_path):
        missing = "echo 'ERROR: No matching distribution found for torch==2.13.0' >&2; exit 1"
        assert self.refusal(tmp_path, missing) == "No matching distribution found for torch==2.13.0"

    def test_accepted_set_is_no_refusal(self, checkout, tmp_path):
        assert self.refusal(tmp_path, "exit 0") is None

    @pytest.mark.parametrize(
        "message",
        [
            "WARNING: Retrying after connection broken by X\nERROR: ResolutionImpossible: see",
            "ERROR: Could not open requirements file",
        ],
        ids=["no network", "another error"],
    )
    def test_failure_that_is_no_refusal_installs_nothing(self, checkout, tmp_path, message):
        """Without a network pip says ResolutionImpossible too: taking the GPU set then would download gigabytes later."""
        with pytest.raises(install.InstallError):
            self.refusal(tmp_path, f"printf '%s\\n' '{message}' >&2; exit 1")

    @staticmethod
    def refusal(tmp_path: Path, body: str) -> str | None:
        with install.locked(tmp_path / "lock") as lock:
            return install.refusal(write_python(tmp_path / "python", body), lock)


class TestStamp:
    def test_second_call_does_nothing(self, checkout, environment, commands):
        install_into(environment)
        assert commands
        commands.clear()
        install_into(environment)
        assert commands == []

    @pytest.mark.parametrize("change", ["constraints.txt", "constraints-gpu.txt", "groups", "editable", "driver", "pyproject"])
    def test_whatever_changes_the_outcome_installs_again(self, checkout, environment, commands, monkeypatch, change):
        install_into(environment)
        commands.clear()
        groups, editable = ["bench"], False
        if change.startswith("constraints"):
            (checkout / change).write_text((checkout / change).read_text() + "six==1.16.0\n")
        elif change == "pyproject":
            path = checkout / "pyproject.toml"
            path.write_text(path.read_text().replace('"torch>=2.11"', '"torch>=2.12"'))
        elif change == "groups":
            groups = ["bench", "test"]
        elif change == "editable":
            editable = True
        else:
            monkeypatch.setattr(install, "has_nvidia_driver", lambda: True)
        install_into(environment, groups, editable)
        assert commands

    def test_interrupted_installation_leaves_no_valid_stamp(self, checkout, environment, commands, monkeypatch):
        """An older, valid stamp must not survive either: the environment is half changed by then."""
        install_into(environment)
        (checkout / "constraints.txt").write_text("six==1.16.0\n")

        def interrupted(command, lock):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(install, "run", interrupted)
            install_into(environment)
        shutil.copy(ROOT / "constraints.txt", checkout)
        commands.clear()
        install_into(environment)
        assert commands

    @pytest.mark.parametrize("text", ["", '{"key": ', "[]", "\0\0"])
    def test_damaged_stamp_installs_again(self, checkout, environment, commands, text):
        install_into(environment)
        commands.clear()
        (environment / install.STAMP).write_text(text)
        install_into(environment)
        assert commands

    def test_environment_whose_python_is_gone_is_made_again(self, checkout, environment, commands, monkeypatch):
        install_into(environment)
        commands.clear()
        (environment / "bin" / "python").unlink()
        (environment / "bin" / "python").symlink_to("/nowhere/python3")
        made = []
        monkeypatch.setattr(install.venv, "create", lambda *arguments, **options: made.append(options["clear"]))
        install_into(environment)
        assert made == [True] and commands

    def test_stamp_names_the_set_that_was_installed(self, checkout, environment, commands):
        install_into(environment)
        assert json.loads((environment / install.STAMP).read_text())["constraints"] == "constraints-cpu.txt"
        assert any(str(checkout / "constraints-cpu.txt") in command for command in commands)


class TestLock:
    def test_second_installation_waits_for_the_first(self, tmp_path, capsys):
        order: list[str] = []

        def second():
            with install.locked(tmp_path):
                order.append("second")

        with install.locked(tmp_path):
            other = threading.Thread(target=second)
            other.start()
            other.join(0.3)
            order.append("first")
        other.join(10)
        assert order == ["first", "second"]
        assert "waiting for another installation" in capsys.readouterr().err

    def test_pip_keeps_the_lock_when_its_parent_is_killed(self, tmp_path):
        """Else the next call would start a second pip in the same environment."""
        program = (
            "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from scripts import install\n"
            "with install.locked(Path(sys.argv[2])) as lock: install.run(['sh', '-c', 'echo up; exec sleep 2'], lock)"
        )
        parent = subprocess.Popen(
            [sys.executable, "-c", program, str(ROOT), str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
        )
        assert parent.stdout is not None
        parent.stdout.readline()
        started = time.monotonic()
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        with install.locked(tmp_path):
            waited = time.monotonic() - started
        parent.stdout.close()
        assert waited > 1


class TestBadInput:
    def test_unknown_group(self, checkout, environment, capsys):
        assert install.main(["--venv", str(environment), "docs"]) == 2
        assert "no dependency group 'docs'; pyproject.toml has bench, test, lint" in capsys.readouterr().err

    def test_folder_that_is_no_environment_is_left_alone(self, checkout, tmp_path, capsys):
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / "thesis.txt").write_text("years of work")
        assert install.main(["--venv", str(precious)]) == 2
        assert "is no virtual environment" in capsys.readouterr().err
        assert (precious / "thesis.txt").read_text() == "years of work"

    def test_system_python_is_not_installed_into(self, monkeypatch, capsys):
        monkeypatch.setattr(sys, "prefix", sys.base_prefix)
        assert install.main([]) == 2
        assert "in no virtual environment" in capsys.readouterr().err

    def test_own_environment_without_pip_is_not_made_anew(self, monkeypatch, capsys):
        """Making it anew would clear the very environment that is running."""
        monkeypatch.setattr(sys, "prefix", "/some/environment")
        monkeypatch.setattr(install.importlib.util, "find_spec", lambda name: None)
        assert install.main([]) == 2
        assert "has no pip" in capsys.readouterr().err

    def test_failing_pip_is_one_sentence(self, checkout, environment, capsys):
        write_python(environment / "bin" / "python", 'case "$*" in *--version*) exit 0;; esac; exit 7')
        assert install.main(["--venv", str(environment)]) == 2
        error = capsys.readouterr().err
        assert "failed with status 7" in error and "Traceback" not in error
        assert not (environment / install.STAMP).exists()
