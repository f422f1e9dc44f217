"""The wheel as a stranger installs it: in an empty folder, with nothing of the repository but what it carries."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from tiny import write_text

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, which is what pip does with one; built from a copy, as building leaves files."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = ["cp", "-r", *(str(ROOT / name) for name in ("pyproject.toml", "README.md", "LICENSE", "src")), str(folder)]
    subprocess.run(copy, check=True)
    build = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--quiet", "-w", "dist"]
    built = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False)
    if "No module named pip" in built.stderr:
        pytest.skip("there is no pip here")
    assert built.returncode == 0, built.stderr
    [wheel] = (folder / "dist").glob("*.whl")
    with ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


@pytest.mark.slow
def test_the_wheel_carries_recipes_sample_pages_and_types(site: Path) -> None:
    source = ROOT / "src" / "bertsmith"
    kept = {
        path.relative_to(source) for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    there = {path.relative_to(site / "bertsmith") for path in (site / "bertsmith").rglob("*") if path.is_file()}
    assert kept == there
    [about] = site.glob("*.dist-info/METADATA")
    required = [line for line in about.read_text().splitlines() if line.startswith("Requires-Dist: sentencex")]
    assert required
    assert "extra ==" not in required[0]  # running text is read after a plain `pip install`
    assert {Path("recipes/tiny/bert.toml"), Path("py.typed"), Path("text/sample/sample.txt.xz")} <= there


@pytest.mark.slow
def test_the_wheel_goes_from_text_to_predictions_in_an_empty_folder(site: Path, tmp_path: Path) -> None:
    """Every verb of the way by name, and the Python calls, from the wheel alone."""
    write_text(tmp_path / "text.txt")
    environment = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    walk = [sys.executable, "-P", str(Path(__file__).with_name("wheel_walk.py")), str(site)]
    done = subprocess.run(walk, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.endswith("the whole way\n")
