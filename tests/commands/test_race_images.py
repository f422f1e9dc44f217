"""A race of image networks: accuracy against equal time or equal FLOPs, and no work done twice."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands.ticking import tick
from tasks.small_images import CONVNET, SETTINGS, save_folder
from typer.testing import CliRunner

from bertsmith.cli import app
from bertsmith.commands import race_images
from bertsmith.commands.race import Rules, load_race
from bertsmith.errors import BertsmithError, RunError
from bertsmith.runs import image_finetuning

pytestmark = pytest.mark.slow("trains the entrants of races")

RULES = Rules(budget="1s", points=2)
VIT = " ".join(["vit-tiny", *SETTINGS])
ALL = ["data.batch_size=8", "train.precision=float32", "train.compile=never"]
ENTRIES = [VIT, f"convnet-small network.width={CONVNET.width}", *ALL]


@pytest.fixture(autouse=True)
def _ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    tick(monkeypatch)


def known(out: Path) -> Any:
    return json.loads((out / "race.json").read_text(encoding="utf-8"))


def test_networks_race_for_equal_time_and_no_work_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, out = save_folder(tmp_path / "images", 24), tmp_path / "race"
    results = race_images.race(ENTRIES, out, rules=RULES, data=images, seeds=2)
    assert known(out)["unit"] == "images"
    vit, convnet = known(out)["rows"]
    assert (vit["label"], convnet["label"]) == ("vit-tiny", "convnet-small")
    for row in (vit, convnet):
        first, last = row["points"]
        assert 0.5 <= first["seconds"] < 0.6
        assert 1 <= last["seconds"] < 1.1
        assert last["images"] == 8 * last["step"]
        assert last["flops"] > first["flops"] > 0
        assert len(last["scores"]["accuracy"]["values"]) == 2
    assert convnet["parameters"] == CONVNET.parameter_count
    assert results.columns[3:5] == ["images", "images/s"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Accuracy, in points" in page
    assert (out / f"convnet-small-network.width={CONVNET.width}" / "model" / "config.json").exists()

    monkeypatch.setattr(image_finetuning, "run_seed", None)  # nothing is trained again
    race_images.race(ENTRIES, out, rules=RULES, data=images, seeds=2)
    assert known(out)["rows"] == [vit, convnet]
    with pytest.raises(RunError, match=r"was begun with --points 2, and not 3"):
        race_images.race(ENTRIES, out, rules=Rules(budget="1s", points=3), data=images)


@pytest.mark.exhaustive
def test_with_equal_flops_all_networks_spend_what_the_first_spends(tmp_path: Path) -> None:
    images, out = save_folder(tmp_path / "images", 24), tmp_path / "race"
    smaller = f"{VIT} network.feed_forward=16"
    race_images.race([VIT, smaller, *ALL], out, rules=Rules(budget="1s", equal="flops", points=2), data=images)
    first, second = (row["points"][-1] for row in known(out)["rows"])
    assert second["step"] > first["step"]
    assert second["flops"] == pytest.approx(first["flops"], rel=0.05)


def test_flops_of_an_image_are_those_of_its_tokens(tmp_path: Path) -> None:
    images = save_folder(tmp_path / "images", 6)
    entrants = race_images.read_entrants([*ENTRIES, "data.size=16"], tmp_path, images, RULES, 1)
    vit, convnet = (race_images.image_flops(one.recipe) for one in entrants.values())
    assert vit == 17 * image_finetuning.network_config(next(iter(entrants.values())).recipe, None).flops(17, 0.0)
    assert convnet == CONVNET.flops(1, 0.0) / 4  # a quarter of the pixels of 32 x 32


@pytest.mark.exhaustive
def test_a_network_that_fails_stops_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, out = save_folder(tmp_path / "images", 24), tmp_path / "race"
    with pytest.raises(RunError, match=r"1 of 2 recipes failed: vit-tiny .*\. The reasons are printed above"):
        race_images.race([f"{VIT} teacher=missing", ENTRIES[1], *ALL], out, rules=RULES, data=images)
    assert "missing" in capsys.readouterr().out
    assert [row["label"] for row in known(out)["rows"]] == ["convnet-small"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["vit-tiny", "bert-tiny", "--data", "IMAGES"],
            "'vit-tiny' reads images, and 'bert-tiny' text. Race them apart",
        ),
        (["vit-tiny"], "needs images for all networks. Give --data IMAGES, a folder for each class"),
        (["vit-tiny", "train.epochs=3", "--data", "IMAGES"], "is set by the race. Use --budget, --points, --data and"),
        (["vit-tiny", "vit-tiny", "--data", "IMAGES"], "two recipes have the name 'vit-tiny'. Rename a file"),
        (["vit-tiny", "--data", "IMAGES", "--budget", "10ms"], "Write 90s, 10m, 1h30m or 2d"),
    ],
)
def test_mistakes_are_reported_before_any_training(arguments: list[str], line: str, tmp_path: Path) -> None:
    images = str(save_folder(tmp_path / "images", 6))
    arguments = [images if one == "IMAGES" else one for one in arguments]
    result = CliRunner().invoke(app, ["race", *arguments, "--out", str(tmp_path / "race")])
    told = str(result.exception) + result.output
    assert result.exit_code
    assert line in re.sub(r"\s+", " ", told)
    assert not (tmp_path / "race").exists()


@pytest.mark.exhaustive
def test_a_race_on_text_does_not_go_on_in_the_folder_of_one_on_images(tmp_path: Path) -> None:
    images, out = save_folder(tmp_path / "images", 24), tmp_path / "race"
    race_images.race(ENTRIES[1:], out, rules=RULES, data=images)
    with pytest.raises(BertsmithError, match=r"is a race on images. Choose another folder"):
        load_race(out, RULES, "bert-tiny")
