"""Translation: token for token as without a cache, the same alone or in a crowd, a line for each line."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tasks.small import prose, stirred
from tasks.written import tokenizer
from torch import Tensor
from typer.testing import CliRunner

from bertsmith import load
from bertsmith.cli import app
from bertsmith.data.batch import Tokens
from bertsmith.errors import FolderError, RecipeError
from bertsmith.inference import translate as module
from bertsmith.inference.model import Model
from bertsmith.metrics.bleu import bleu
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import TRANSFORMER_TINY
from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.search import GenerationConfig, Step
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.recorded import record
from bertsmith.nn import kv_cache
from bertsmith.tasks.text_to_text import TextToText

SIZES = {"width": 32, "layers": 2, "decoder_layers": 2, "heads": 4, "feed_forward": 48, "max_length": 40}
SHAPE = replace(TRANSFORMER_TINY, vocabulary=tokenizer().vocabulary, **SIZES)
ROWS = [[5, 9, 33, 7, 1], [8, 1], [*range(40, 60), 1]]
SEARCHES = {
    "greedy": GenerationConfig(max_new_tokens=12, temperature=0),
    "beams": GenerationConfig(max_new_tokens=12, num_beams=5, temperature=0),
    "long beams": GenerationConfig(max_new_tokens=12, num_beams=3, length_penalty=2.0, temperature=0),
}


def network() -> EncoderDecoder:
    made: EncoderDecoder = stirred(EncoderDecoder(SHAPE))
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was taught nothing, and says so with confidence."""
    place, task = (
        tmp_path_factory.mktemp("model"),
        TextToText(network(), TextToText.Config(translation=True, max_new_tokens=10)),
    )
    said = {"task": "write", "labels": [], "translation": True, "max_new_tokens": 10, "label_smoothing": 0.1}
    extra = {"bertsmith": said, **tokenizer().special_ids(layout_of(SHAPE).special_tokens)}
    folders.write(place, SHAPE, task.state_dict(), extra)
    tokenizer().save(place, max_length=SHAPE.max_length)
    return place


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load(folder)


class Anew(GenerationEngine):
    """The twin without a cache: at every token it reads and writes everything again."""

    def prefill(self, rows: Sequence[Sequence[int]], config: GenerationConfig) -> tuple[Tensor, Step]:
        ways = config.num_beams
        texts, trunk = [[[self.decoder_start_id]] * ways for _ in rows], self.trunk
        assert isinstance(trunk, EncoderDecoder)

        def scores() -> Tensor:
            read = Tokens.from_rows([row for row in rows for _ in range(ways)])
            written = Tokens.from_rows([text for several in texts for text in several])
            last = trunk(read, written)[written.bounds[1:].long() - 1]
            return trunk.logits(last).unflatten(0, (len(rows), ways))

        def step(ids: Tensor, came: Tensor | None) -> Tensor:
            olds = torch.zeros_like(ids) if came is None else came
            for several, ways_of_it, news in zip(texts, olds.tolist(), ids.tolist(), strict=True):
                several[:] = [[*several[old], new] for old, new in zip(ways_of_it, news, strict=True)]
            return scores()

        return scores()[:, 0], step


@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
def test_a_cache_changes_no_token(config: GenerationConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache, "PRUNE_EVERY", 4)
    trunk = network()
    found = generate(GenerationEngine(trunk), ROWS, config, [1])
    assert found == generate(Anew(trunk), ROWS, config, [1])
    assert len({token for (text,) in found for token in text}) > 2  # they say something


@torch.no_grad()
def test_what_a_token_takes_from_the_source_sums_to_one() -> None:
    trunk = network()
    written = [[0, 4, 5], [0], [0, 7, 8, 9]]
    memory = trunk.encode(Tokens.from_rows(ROWS))
    weights = record(trunk.decoder, Tokens.from_rows(written), memory).cross_attention
    assert len(weights) == SHAPE.decoder_layers
    for layer in weights:
        assert [tuple(one.shape) for one in layer] == [
            (4, len(out), len(row)) for row, out in zip(ROWS, written, strict=True)
        ]
        for one in layer:
            torch.testing.assert_close(one.sum(-1), torch.ones(one.shape[:2]))


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 5])
def test_a_translation_is_the_same_alone_and_in_a_crowd(
    beams: int, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [" ".join(dict.fromkeys(text.split())) for text in prose(12, 3)]
    together = model.translate(texts, num_beams=beams)
    assert [model.translate([text], num_beams=beams)[0] for text in texts] == together
    monkeypatch.setitem(module.BATCH_TOKENS, "cpu", 40)
    assert model.translate(texts[::-1], num_beams=beams) == together[::-1]
    assert len(set(together)) > 2


def test_nothing_is_written_about_nothing_and_no_text_is_lost(model: Model) -> None:
    assert model.translate([]) == []
    assert model.translate(["", "  "]) == ["", ""]
    found = model.translate([" the old cat ", "", "dog"], full=True)
    assert [one.text for one in found] == [" the old cat ", "", "dog"]
    assert [bool(one.translation) for one in found] == [True, False, True]


def test_the_prediction_for_nothing_is_its_translation(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    written = torch.tensor(model.tokenizer.encode(["dog"])[0], dtype=torch.float32)
    monkeypatch.setattr(model.objective, "outputs", lambda tokens: [written] * (len(tokens.bounds) - 1))
    assert [one["text"] for one in model.predict(["", "the cat", " "])] == ["", "dog", ""]


def test_what_is_too_long_is_cut_and_told(model: Model) -> None:
    with pytest.warns(UserWarning, match="text 2: 21 of its tokens were not read"):
        model.translate(["cat", " ".join(["cat"] * 60)])


def test_one_text_gives_one_translation_and_a_list_gives_a_list(model: Model) -> None:
    assert model.translate("cat") == model.translate(["cat"])[0]
    assert [model.translate("cat", full=True)] == model.translate(["cat"], full=True)
    with pytest.raises(RecipeError, match=r"beams: is not an option here\. Did you mean 'num_beams'\?"):
        model.translate("cat", beams=2)


def test_a_model_that_has_not_learnt_to_translate_says_so(tmp_path: Path) -> None:
    folders.write(tmp_path, SHAPE, {f"trunk.{name}": weight for name, weight in network().state_dict().items()})
    tokenizer().save(tmp_path)
    with pytest.raises(FolderError, match=r"was not fine-tuned to translate\. Fine-tune it first: bertsmith finetune"):
        load(tmp_path).translate(["cat"])


# --------------------------------------------------------------------------------------------- the command


@pytest.mark.slow
def test_the_command_writes_a_line_for_each_line(folder: Path, model: Model, tmp_path: Path) -> None:
    texts = ["the old cat", "", "dog", "in the garden"]
    (tmp_path / "in.en").write_text("\n".join(texts) + "\n")
    wanted = model.translate(texts)
    for result in (
        CliRunner().invoke(app, ["translate", str(folder), str(tmp_path / "in.en")]),
        CliRunner().invoke(app, ["translate", str(folder)], input="\n".join(texts)),
    ):
        assert result.exit_code == 0, result.output
        assert result.stdout == "\n".join(wanted) + "\n"
    told = CliRunner().invoke(app, ["translate", str(folder), str(tmp_path / "in.en"), "--json", "--num-beams", "1"])
    said = [json.loads(line) for line in told.stdout.splitlines()]
    assert [one["text"] for one in said] == texts
    assert [one["translation"] for one in said] == model.translate(texts, num_beams=1)


def test_the_command_tells_how_good_translations_are(folder: Path, model: Model, tmp_path: Path) -> None:
    texts, gold = ["the old cat", "dog in the river"], ["old cat the in", "the river dog"]
    (tmp_path / "in.en").write_text("\n".join(texts) + "\n")
    (tmp_path / "out.de").write_text("\n".join(gold) + "\n")
    asked = ["translate", str(folder), str(tmp_path / "in.en"), "--reference", str(tmp_path / "out.de")]
    result = CliRunner().invoke(app, asked)
    score = bleu(model.translate(texts), gold)
    assert result.stderr == f"BLEU {score:.2f} of 2 lines, nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp\n"
    (tmp_path / "out.de").write_text("one\n")
    wrong = CliRunner().invoke(app, asked)
    fact = f"{tmp_path / 'out.de'}: has 1 lines, and 2 were translated. Give one reference per line, in the same order."
    assert str(wrong.exception) == fact
