"""The wheel of the running Muster: pip installs it, and it works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import muster
from muster.images.wheel import build_wheel


def test_the_same_code_gives_the_same_bytes() -> None:
    assert build_wheel() == build_wheel()


def test_pip_installs_the_wheel_and_it_runs(tmp_path: Path) -> None:
    wheel = build_wheel()
    path = tmp_path / wheel.name
    path.write_bytes(wheel.content)
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(path)], check=True, timeout=300)
    script = target / "bin" / "muster"
    assert script.read_text().startswith(f"#!{sys.executable}\n")
    env = {**os.environ, "PYTHONPATH": str(target)}
    ran = subprocess.run(
        [script, "--version"], check=True, capture_output=True, text=True, env=env, timeout=60
    )
    assert ran.stdout.split()[-1] in wheel.name
    code = "import muster, muster.cli.main as m; print(muster.__file__); m.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(target)},
        timeout=60,
    )
    location, version = done.stdout.splitlines()
    assert location.startswith(str(target))
    assert version.split()[-1] in wheel.name


def test_the_script_is_accepted_by_installers() -> None:
    """Installers write their Python into its first line, and do not change its mode."""
    script = Path(muster.__file__).parent / "bin" / "muster"
    assert script.read_text().startswith("#!python\n")
    assert os.access(script, os.X_OK)
