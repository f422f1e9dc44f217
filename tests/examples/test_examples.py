"""The examples of how to run the server hold up to the field's own linters, and call it with options that it has."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from bertsmith.cli import app
from bertsmith.commands.serve import KEY_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
UNIT, CONTAINER = EXAMPLES / "bertsmith.service", EXAMPLES / "Containerfile"


@pytest.mark.parametrize(("language", "example"), [("ini", UNIT), ("dockerfile", CONTAINER)])
def test_the_guide_shows_lines_of_the_examples(language: str, example: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "serve.md").read_text()
    [block] = re.findall(rf"^```{language}\n(.*?)^```$", guide, re.M | re.S)
    assert set(block.splitlines()) <= set(example.read_text().splitlines())


def options() -> set[str]:
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return {option for parameter in command.params for option in parameter.opts}


def test_the_container_passes_hadolint() -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([program, str(CONTAINER)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_container_calls_a_server_that_exists() -> None:
    text = CONTAINER.read_text()
    words = [word for name in ("ENTRYPOINT", "CMD") for word in re.findall(rf"^{name} \[(.*)\]", text, re.M)]
    called = [part.strip('"') for word in words for part in word.split(", ")]
    assert called[:2] == ["bertsmith", "serve"]
    assert {word for word in called if word.startswith("--")} <= options()
    # docker has no secrets outside of a swarm: the key comes by the environment, with podman too.
    assert "--key-file" not in called
    assert f"target={KEY_VARIABLE}" in text
    assert f"-e {KEY_VARIABLE}" in text


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/bertsmith/bin/bertsmith", shutil.which("true") or ""))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]  # not other units of this machine
    assert (done.returncode, ours) == (0, [])
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    found = re.search(
        r"Overall exposure level.*: ([\d.]+)", subprocess.run(command, capture_output=True, text=True).stdout
    )
    assert found is not None
    assert float(found[1]) <= 2.0  # of 10


def test_the_unit_calls_a_server_that_exists() -> None:
    [start] = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.M)
    words = shlex.split(start)
    assert words[1] == "serve"
    assert {word for word in words if word.startswith("--")} <= options()
    assert "kill -HUP $MAINPID" in UNIT.read_text()
