"""Blanks are filled as the text asks, alone or in a crowd."""

from pathlib import Path

import pytest
from tiny import prepared, recipe

import bertsmith
from bertsmith.commands import pretrain
from bertsmith.errors import TextError

pytestmark = pytest.mark.slow("trains the model that all tests ask")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bertsmith.Model:
    folder = tmp_path_factory.mktemp("tiny")
    pretrain.pretrain(
        recipe(
            prepared(folder),
            folder / "run",
            "train.steps=250",
            "objective.pairs=none",  # with which every seed learns it twice as soon
            "train.evaluations=0",
            "train.checkpoints=0",
            "model.dropout=0.0",
            "model.attention_dropout=0.0",
            "optimizer.learning_rate=0.006",
            "data.max_length=16",
        )
    )
    return bertsmith.load(folder / "run" / "model")


def test_a_trained_model_knows_the_grammar_of_its_language(model: bertsmith.Model) -> None:
    from tiny import NOUNS, PLACES

    filled = model.fill("the cat sees the [MASK] in the [MASK] .")
    noun, place = ({guess.word for guess in blank[:3]} for blank in filled.blanks)
    assert noun <= set(NOUNS)
    assert place <= set(PLACES)
    assert filled.best.startswith("the cat sees the ")


def test_probabilities_are_sorted_and_no_special_token_is_a_word(model: bertsmith.Model) -> None:
    blank = model.fill("the dog likes the [MASK] .", top_k=1000).blanks[0]
    values = [guess.probability for guess in blank]
    assert values == sorted(values, reverse=True)
    assert sum(values) == pytest.approx(1.0, abs=1e-5)
    assert all(guess.probability == 0 for guess in blank if guess.word.startswith("["))


def test_neighbours_do_not_change_an_answer(model: bertsmith.Model) -> None:
    texts = ["the cat sees the [MASK] .", "the queen [MASK] the fish in the river .", "[MASK] dog"]
    together = model.fill(texts)
    for text, answer in zip(texts, together, strict=True):
        alone = model.fill(text)
        assert [guess.word for guess in alone.blanks[0]] == [guess.word for guess in answer.blanks[0]]
        for one, other in zip(alone.blanks[0], answer.blanks[0], strict=True):
            assert one.probability == pytest.approx(other.probability, abs=1e-6)


def test_many_texts_are_filled_in_parts_and_in_order(model: bertsmith.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from bertsmith.inference import fill

    texts = [f"the {noun} sees the [MASK] ." for noun in ("cat", "dog", "king", "tree", "fish")] * 3
    whole = [answer.to_dict() for answer in model.fill(texts)]
    monkeypatch.setattr(fill, "BATCH_TOKENS", 20)
    parts = [answer.to_dict() for answer in model.fill(texts)]
    assert [answer["text"] for answer in parts] == texts
    assert [answer["best"] for answer in parts] == [answer["best"] for answer in whole]


def test_no_texts_have_no_blanks(model: bertsmith.Model) -> None:
    assert model.fill([]) == []


def test_a_text_without_a_blank_is_refused(model: bertsmith.Model) -> None:
    with pytest.raises(
        TextError, match=r"'no blank here': has no blank to fill. Write \[MASK\] where a word is missing."
    ):
        model.fill("no blank here")


def test_a_text_too_long_is_refused(model: bertsmith.Model) -> None:
    with pytest.raises(TextError, match=r"tokens long, the model reads 32. Shorten it."):
        model.fill("the cat " * 40 + "[MASK]")


def test_a_folder_without_a_masked_word_head_says_so(model: bertsmith.Model) -> None:
    from bertsmith.errors import FolderError

    bare = bertsmith.Model(model.objective, model.tokenizer, "some/folder", has_lm_head=False)
    with pytest.raises(FolderError, match=r"some/folder: has no masked-word head. Blanks need"):
        bare.fill("the [MASK]")


def test_a_folder_that_was_loaded_gives_the_weights_that_were_trained(tmp_path: Path) -> None:
    import torch

    folder = prepared(tmp_path)
    pretrain.pretrain(recipe(folder, tmp_path / "run", "train.steps=3"))
    from bertsmith.train import checkpoint

    found = checkpoint.load_newest(tmp_path / "run" / "checkpoints")
    assert found is not None
    loaded = bertsmith.load(tmp_path / "run" / "model").objective.state_dict()
    for name, tensor in found[0].tensors["model"].items():
        assert torch.equal(tensor, loaded[name]), name
