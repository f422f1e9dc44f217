"""The loop of word vectors: the same seed gives the same vectors, a stopped run goes on, a toy language is learnt."""

import io
import json
import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.data.corpus.word_ids import WordIds, encode_words
from bertsmith.errors import RunError
from bertsmith.inference.word_vectors import KeyedVectors
from bertsmith.models.word2vec import Word2Vec, Word2VecConfig
from bertsmith.models.word_vectors import WordVectors
from bertsmith.objectives.word2vec import loss, sgd_step
from bertsmith.objectives.word2vec_blocks import NegativeSamplingConfig
from bertsmith.train import log, word2vec, word2vec_updater
from bertsmith.train.display import Display
from bertsmith.train.word2vec import Word2VecTrainConfig, Word2VecTrainer

KINDS = ("skip-gram", "cbow")
NEIGHBOURS = NegativeSamplingConfig(window=3, block=64, shared_negatives=16, subsample=0)


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "WORDS_PER_STEP", 1_000)


def toy(sentences: int = 1_500) -> WordIds:
    """Four nouns, each with words of its place and words of its sex round it."""
    chance = np.random.default_rng(0)
    of = {
        "royal": ["crown", "throne", "palace", "castle"],
        "farm": ["field", "plough", "barn", "cart"],
        "he": ["he", "his", "him", "beard"],
        "she": ["she", "her", "hers", "gown"],
    }
    nouns = {"king": ("royal", "he"), "queen": ("royal", "she"), "farmer": ("farm", "he"), "milkmaid": ("farm", "she")}
    lines = []
    for _ in range(sentences):
        noun = chance.choice(list(nouns))
        around = [str(chance.choice(of[one])) for one in nouns[noun] for _ in range(2)]
        chance.shuffle(around)
        lines.append(" ".join([*around[:2], str(noun), *around[2:]]))
    return encode_words(lines, min_count=1)


def trainer(
    folder: Path, text: WordIds, kind: str = "skip-gram", width: int = 16, **settings: object
) -> Word2VecTrainer:
    config = Word2VecTrainConfig(**{"epochs": 2.0, "checkpoints": 0, "device": "cpu", **settings})  # type: ignore[arg-type]
    model = Word2Vec.initialise(Word2VecConfig(kind=kind, width=width), len(text.words), config.seed)  # type: ignore[arg-type]
    display = Display(terminal=False, stream=io.StringIO())
    return Word2VecTrainer(model, text, NEIGHBOURS, config, folder=folder, display=display, tensorboard=False)


def losses(folder: Path) -> list[float]:
    return [entry["loss"] for entry in log.read(folder / log.NAME)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_vectors_and_another_does_not(tmp_path: Path, kind: str) -> None:
    text = toy(500)
    first, same, other = (
        trainer(tmp_path / name, text, kind, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    for one in (first, same, other):
        one.fit()
    assert torch.equal(first.model.inputs, same.model.inputs)
    assert torch.equal(first.model.outputs, same.model.outputs)
    assert losses(tmp_path / "a") == losses(tmp_path / "b") != losses(tmp_path / "c")
    assert not torch.equal(first.model.inputs, other.model.inputs)


def test_every_sentence_is_read_once_an_epoch_in_another_order(tmp_path: Path) -> None:
    text = encode_words((f"begin{place} " + "filler " * (place % 7) for place in range(800)), min_count=1)
    run = trainer(tmp_path / "run", text)
    orders = []
    for epoch in range(2):
        found = [run.blocks(step) for step in range(epoch * run.steps_per_epoch, (epoch + 1) * run.steps_per_epoch)]
        assert sum(one.words_read for one in found) == len(text.ids)
        orders.append(run._order(epoch)[0].tolist())
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(800))
    assert run.steps_per_epoch > 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_ends_with_the_same_vectors(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = toy(500)
    whole = trainer(tmp_path / "whole", text, kind, checkpoints=2)
    whole.fit()
    stopped = trainer(tmp_path / "stopped", text, kind, checkpoints=2)
    update = Word2VecTrainer.update

    def interrupted(self: Word2VecTrainer, blocks: object, rate: float) -> None:
        update(self, blocks, rate)  # type: ignore[arg-type]
        if self.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Word2VecTrainer, "update", interrupted)
    with pytest.raises(RunError, match="stopped at step 3, saved"):
        stopped.fit()
    monkeypatch.setattr(Word2VecTrainer, "update", update)
    again = trainer(tmp_path / "stopped", text, kind, checkpoints=2)
    figures = again.fit()
    assert torch.equal(whole.model.inputs, again.model.inputs)
    assert torch.equal(whole.model.outputs, again.model.outputs)
    assert losses(tmp_path / "whole") == losses(tmp_path / "stopped")
    assert figures["words"] == whole.words == 2 * len(text.ids)
    done = trainer(tmp_path / "stopped", text, kind, checkpoints=2)
    done.fit()  # a run that is over has nothing left to do
    assert torch.equal(done.model.inputs, again.model.inputs)


def test_records_after_the_last_checkpoint_are_logged_once_and_the_clock_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = toy(500)
    trainer(tmp_path / "whole", text, KINDS[0]).fit()
    stopped, update = trainer(tmp_path / "stopped", text, KINDS[0]), Word2VecTrainer.update
    start = stopped.clock.start

    def late() -> None:
        start()
        stopped.clock._started -= 1000  # type: ignore[operator]

    def interrupted(self: Word2VecTrainer, blocks: object, rate: float) -> None:
        update(self, blocks, rate)  # type: ignore[arg-type]
        if self.step == 1:
            self.save()
        if self.step == 3:
            raise RuntimeError("the plug was pulled")

    monkeypatch.setattr(stopped.clock, "start", late)
    monkeypatch.setattr(Word2VecTrainer, "update", interrupted)
    with pytest.raises(RuntimeError, match="plug"):
        stopped.fit()
    monkeypatch.setattr(Word2VecTrainer, "update", update)
    figures = trainer(tmp_path / "stopped", text, KINDS[0]).fit()
    assert losses(tmp_path / "whole") == losses(tmp_path / "stopped")
    assert figures["seconds"] > 1000


def test_the_number_of_prefetched_steps_changes_nothing(tmp_path: Path) -> None:
    text = toy(500)
    one, many = trainer(tmp_path / "one", text), trainer(tmp_path / "many", text)
    many.prefetch = 5
    one.fit()
    many.fit()
    assert one.step == many.step > 5
    assert torch.equal(one.model.inputs, many.model.inputs)
    assert losses(tmp_path / "one") == losses(tmp_path / "many")


@pytest.mark.slow("Numba compiles")
@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_is_learnt_by_numba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    pytest.importorskip("numba", reason="Numba is not installed here")
    text = toy(500)
    plain, short = trainer(tmp_path / "plain", text, kind), trainer(tmp_path / "short", text, kind)
    monkeypatch.setattr(word2vec_updater, "MIN_WORDS_TO_COMPILE", len(text.ids))
    fast, again = trainer(tmp_path / "fast", text, kind), trainer(tmp_path / "again", text, kind)
    assert [one._train_blocks.uses_kernel for one in (plain, short, fast, again)] == [False, False, True, True]
    for one in (plain, fast, again):
        one.fit()
    assert torch.equal(fast.model.inputs, again.model.inputs)
    torch.testing.assert_close(fast.model.inputs, plain.model.inputs, rtol=1e-3, atol=1e-4)
    assert losses(tmp_path / "fast") == pytest.approx(losses(tmp_path / "plain"), rel=1e-3)
    assert (plain.model.inputs - short.model.inputs).abs().max() > 0.1


def test_without_numba_torch_learns_and_a_line_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = toy(100)
    monkeypatch.setattr(word2vec_updater, "find_spec", lambda _: None)
    for long, warned in ((len(text.ids) + 1, False), (len(text.ids), True)):
        monkeypatch.setattr(word2vec_updater, "MIN_WORDS_TO_COMPILE", long)
        run, stream = trainer(tmp_path / str(long), text), io.StringIO()
        run.display = Display(terminal=False, stream=stream)
        assert not run._train_blocks.uses_kernel
        run.fit()
        assert ("bertsmith[words]" in stream.getvalue()) == warned


@pytest.mark.gpu
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_captured_updates_equal_eager_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, own: bool
) -> None:
    """Groups of blocks, the last of a step not full, by our own kernels and by torch's."""
    monkeypatch.setattr(word2vec, "WORDS_PER_STEP", 2_200)  # three groups, and the first and the last are looked at
    run = trainer(tmp_path / "run", toy(2_000), kind)
    first, plain, played = (Word2Vec.initialise(run.model.config, len(run.text.words), 0, "cuda") for _ in range(3))
    recorded, rates = word2vec_updater.TableUpdater(played, run.sampling, len(run.text.ids)), np.linspace(0.05, 0.01, 4)
    assert recorded.uses_kernel  # the card can
    recorded.uses_kernel = own
    for step, rate in enumerate(rates.tolist()):
        blocks = run.blocks(step)
        assert len(blocks) % word2vec_updater.BLOCKS_PER_GRAPH
        seen = []
        for place, block in enumerate(blocks.map_tensors(lambda part: part.cuda())):
            if place % (word2vec_updater.BLOCKS_PER_GRAPH * word2vec_updater.LOSS_EVERY) == 0:
                seen.append([float(part) for part in loss(plain, block, run.sampling.negatives)])
            sgd_step(plain, block, run.sampling.negatives, rate)
        assert recorded(blocks, rate) == pytest.approx(np.sum(seen, 0), rel=1e-4)
    assert recorded._captured is not None
    torch.testing.assert_close(played.inputs, plain.inputs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(played.outputs, plain.outputs, rtol=1e-4, atol=1e-5)
    assert (plain.inputs - first.inputs).abs().max() > 0.01


def test_other_text_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path / "run", toy(300), checkpoints=1).fit()
    with pytest.raises(RunError, match="was begun with other text"):
        trainer(tmp_path / "run", toy(301), checkpoints=1).fit()


def test_a_non_finite_loss_stops_the_run(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run", toy(300))
    run.model.inputs.fill_(math.nan)
    with pytest.raises(RunError, match="the loss was not a number at step 1"):
        run.fit()


def test_a_time_budget_ends_a_run_and_the_learning_rate_follows_it(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run", toy(300), epochs=None, budget="0.5s")
    figures = run.fit()
    assert 0.5 <= figures["seconds"] < 3
    rates = [entry["learning_rate"] for entry in log.read(tmp_path / "run" / log.NAME)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < rates[0] <= 0.025


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ({"epochs": 2.0, "budget": "1m"}, "give one of epochs and budget, not both"),
        ({"epochs": 0.0}, "epochs is 0.0. Give more than 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0. Give more than 0"),
        ({"budget": "0s"}, "budget is 0s. Give more than 0"),
        ({"seed": 10**20}, "seed is 100000000000000000000. Give a whole number of at most 18 digits"),
        ({"budget": "soon"}, "'soon' is not a duration"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        Word2VecTrainConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_toy_language_is_learnt(tmp_path: Path, kind: str) -> None:
    """Few words, each of them many times in every block: what is summed over a block must not run away."""
    text = toy()
    run = trainer(tmp_path / "run", text, kind, epochs=10.0)
    run.fit()
    found = losses(tmp_path / "run")
    assert np.mean(found[-10:]) < 0.85 * np.mean(found[:3])
    assert run.model.inputs.abs().max() < 20
    words = KeyedVectors(WordVectors(text.words, run.model.inputs.numpy()))
    for royal, common in (("crown", "plough"), ("throne", "barn")):
        nearest = [one.word for one in words.most_similar(royal, 3)]
        assert set(nearest) <= {"crown", "throne", "palace", "castle", "king", "queen"}, nearest
        assert common not in nearest
    assert json.loads((tmp_path / "run" / log.NAME).read_text().splitlines()[0])["kind"] == "step"
