"""What `serve` refuses before it starts anything, each in one line."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bertsmith.cli import app
from bertsmith.commands import serve as command
from bertsmith.errors import BertsmithError


def run(*arguments: str) -> str:
    """The line of a server that must not start."""
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert isinstance(result.exception, BertsmithError), result.output
    return str(result.exception)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("BERTSMITH_KEY", raising=False)
    (tmp_path / "mine").mkdir()
    return str(tmp_path / "mine")


def test_what_cannot_be_served_is_a_line(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("0.0.0.0", "::"):
        assert run(model, "--host", host) == (
            f"host {host}: can be reached from other machines, and there is no key. "
            "Give one with --key-file or BERTSMITH_KEY, or listen on 127.0.0.1."
        )
    assert run(model, "--host", "no.such.host.invalid").startswith("host no.such.host.invalid: is not known here.")
    assert run("nowhere") == "nowhere: is no folder. Give the path of a model folder."
    assert run("x=nowhere").startswith("nowhere: is no folder.")
    assert run(model, f"mine={model}").startswith(f"{model}: there is another model 'mine'. Give it a name: other=")
    assert run(model, "--key", "short").startswith("key: has fewer than 8 characters. Make one with: openssl ")
    assert run(model, "--key", "two words here").startswith("key: has a blank or a special character.")
    assert run(model, "--key-file", str(tmp_path / "none")).startswith(f"{tmp_path / 'none'}: the key cannot be read ")
    monkeypatch.setenv("BERTSMITH_KEY", "")
    assert run(model).startswith("key: has fewer than 8 characters.")


def test_without_its_extra_it_says_what_to_install(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "msgspec" else find(name))
    assert run(model) == "serve: needs msgspec. Install it with: pip install 'bertsmith[serve]'."


def test_names_of_models_are_those_of_their_runs(tmp_path: Path) -> None:
    for path in ("runs/mine/model", "runs/a=b", "other"):
        (tmp_path / path).mkdir(parents=True)
    given = [str(tmp_path / "runs/mine/model"), str(tmp_path / "runs/a=b"), f"best={tmp_path / 'other'}"]
    assert list(command.named(given)) == ["mine", "a=b", "best"]


def test_the_key_of_an_option_comes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTSMITH_KEY", "of-the-environment")
    (tmp_path / "key").write_text("of-the-file\n")
    assert command.read_key(None, None) == "of-the-environment"
    assert command.read_key("of-the-option", None) == "of-the-option"
    assert command.read_key(None, tmp_path / "key") == "of-the-file"


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False), ("10.0.0.1", False)]
)
def test_addresses_of_this_machine_alone_are_known(host: str, own: Any) -> None:
    assert command.is_loopback(host) is own
