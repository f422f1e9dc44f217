"""A step that is recorded and played again gives the numbers of one that ran."""

from pathlib import Path

import pytest
import torch
from tiny import losses, prepared, recipe, weights

from bertsmith.commands import pretrain
from bertsmith.data.feed import Feed
from bertsmith.data.labelled.examples import Example
from bertsmith.data.sampler import BatchSampler
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.tasks.base import Bucket
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train
from bertsmith.train.display import Display
from bertsmith.train.optimizers import Optimizer, OptimizerConfig
from bertsmith.train.schedules import ScheduleConfig
from bertsmith.train.step import Step
from bertsmith.train.step_metrics import Speed
from bertsmith.train.train_config import TrainConfig
from bertsmith.train.trainer import Trainer

WORDS = ["the", "cat", "saw", "a", "dog", "and", "ran", "far", "away", "from", "here", "to", "there"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 50, TokenizerConfig(vocabulary=120))


def trained(tokenizer: Tokenizer, folder: Path, *, graphs: bool, steps: int = 40) -> tuple[Trainer, dict]:
    chance = torch.Generator().manual_seed(0)
    examples = []
    for number in range(150):  # an odd number: the last batch of an epoch is smaller
        picks = torch.randint(len(WORDS), (int(torch.randint(1, 12, (), generator=chance)),), generator=chance)
        examples.append(
            Example(location=str(number), texts=(" ".join(WORDS[n] for n in picks),), label=str(number % 2))
        )
    shape = TransformerConfig(
        vocabulary=tokenizer.vocabulary, width=64, layers=2, heads=4, feed_forward=128, max_length=32
    )
    task = SequenceClassification(Transformer(shape), SequenceClassification.Config(), ("0", "1"))
    initialise(task, 0)
    task.cuda().train()
    mould = Bucket(batch_size=16, max_length=32, pad_to_multiple_of=64, padding=tokenizer.padding_id)
    source = BatchSampler(task.preprocess(examples, tokenizer, 32), 16, seed=0)
    folder.mkdir()
    config = TrainConfig(steps=steps, checkpoints=1, compile="never")
    optimizer = Optimizer(task, OptimizerConfig(learning_rate=1e-3), capturable=graphs)
    trainer = Trainer(
        Step(task, optimizer, config, torch.bfloat16),
        Feed(source, lambda items: task.collate(items, mould), "data"),
        ScheduleConfig(),
        config,
        folder=folder,
        compute_metrics=lambda: {"loss": 0.0},
        speed=Speed(None, lambda attended: 1.0),
        display=Display(),
        tensorboard=False,
    )
    trainer.fit()
    return trainer, {name: weight.clone() for name, weight in task.state_dict().items()}


@pytest.mark.gpu
def test_replayed_steps_equal_eager_steps(tokenizer: Tokenizer, tmp_path: Path) -> None:
    ran, weights = trained(tokenizer, tmp_path / "ran", graphs=False)
    played, same = trained(tokenizer, tmp_path / "captured", graphs=True)
    assert ran.train_step.graphs is None
    assert len(played.train_step.graphs._captured) >= 2
    assert played.state.step == ran.state.step == 40
    for name, weight in weights.items():
        torch.testing.assert_close(same[name], weight, rtol=0, atol=2e-3, msg=name)
    losses = [
        [line for line in (tmp_path / name / "log.jsonl").read_text().splitlines() if '"step"' in line]
        for name in ("ran", "captured")
    ]
    assert len(losses[0]) == len(losses[1])


@pytest.mark.gpu
def test_a_replayed_step_with_a_non_finite_gradient_changes_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    trainer, before = trained(tokenizer, tmp_path / "run", graphs=True)
    batch = trainer.feed(0)
    for _ in range(3):  # run, recorded, played
        trainer.update([batch], 0.0)
    first = next(trainer.objective.parameters())
    with torch.no_grad():
        first[:] = float("nan")
    trainer.update([batch], 1.0)
    *_, bad = trainer.step_metrics._pending[-1][1].tolist()
    assert bad == 1.0
    first.data.copy_(before[next(name for name, _ in trainer.objective.named_parameters())])
    for name, weight in trainer.objective.state_dict().items():
        assert torch.equal(weight, before[name]), name


@pytest.mark.gpu
@pytest.mark.parametrize("matrices", ["adamw", "muon"])
def test_a_compiled_run_learns_the_same_with_and_without_cuda_graphs(
    matrices: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, seen = prepared(tmp_path), {}
    for name in ("captured", "eager"):
        if name == "eager":
            monkeypatch.setattr(pretrain, "should_capture", lambda *_: False)
        pretrain.pretrain(recipe(data, tmp_path / name, "train.steps=30", f"optimizer.hidden_optimizer={matrices}"))
        seen[name] = [loss for _, loss in losses(tmp_path / name)]
    assert seen["eager"][-1] < seen["eager"][0] - 0.5
    assert seen["captured"] == pytest.approx(seen["eager"], rel=1e-3)
    eager = weights(tmp_path / "eager")
    for name, weight in weights(tmp_path / "captured").items():
        torch.testing.assert_close(weight, eager[name], rtol=0, atol=2e-3, msg=name)
