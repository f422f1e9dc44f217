"""What holds for every classifier of images: neighbours and micro-batches change nothing; what a teacher adds."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scripts import run
from tasks.small_images import CLASSES, CONVNET, VIT, labelled, pixels, task
from torch import Tensor

from bertsmith.data.images.augmentation import AugmentationConfig
from bertsmith.data.images.draws import Draws
from bertsmith.data.images.labelled_images import LabelledImages
from bertsmith.errors import FolderError, RecipeError, TextError
from bertsmith.models.convnet import ConvNetConfig
from bertsmith.models.hf import image_classifiers
from bertsmith.models.hf.image_processor import ImageProcessor
from bertsmith.models.image_classifier import Normalisation, class_logits
from bertsmith.models.vision_config import VisionConfig
from bertsmith.tasks.image_classification import ImageClassification
from bertsmith.tasks.teacher import Teacher
from bertsmith.train.optimizers import Optimizer, OptimizerConfig
from bertsmith.train.step import Step
from bertsmith.train.train_config import TrainConfig

CPU = torch.device("cpu")
DEIT = replace(VIT, distillation_token=True)
NETWORKS = [VIT, DEIT, CONVNET]
CHANGES = AugmentationConfig(padding=2, brightness=0.3, operations=1, erasing=0.5)


def logits(one: ImageClassification, data: LabelledImages, rows: list[int]) -> Tensor:
    with torch.inference_mode():
        return one.eval().logits(one.collate_unchanged(np.array(rows), data), CPU)


def update(one: ImageClassification, data: LabelledImages, parts: list[list[int]]) -> dict[str, Tensor]:
    """The weights after one update by these micro-batches."""
    one = one.train()
    optimizer = Optimizer(one, OptimizerConfig(learning_rate=0.1), hidden_matrices={})
    step = Step(one, optimizer, TrainConfig(steps=1, compile="never", gradient_accumulation=len(parts)), torch.float32)
    step([one.collate(Draws(3, 0, np.array(rows)), data) for rows in parts], 0, 1.0)
    return dict(one.state_dict())


@pytest.mark.parametrize("config", NETWORKS)
def test_neighbours_do_not_change_a_prediction(config: VisionConfig | ConvNetConfig) -> None:
    one, data = task(config), labelled(pixels(6))
    whole = logits(one, data, [0, 1, 2, 3, 4, 5])
    torch.testing.assert_close(logits(one, data, [4]), whole[4:5])
    torch.testing.assert_close(logits(one, data, [5, 0]), whole[[5, 0]])


def test_images_of_several_sizes_are_one_batch_without_padding() -> None:
    sizes = [(8, 8), (12, 8), (8, 16), (8, 8)]
    one, data = task(), labelled([pixels(1, *size, seed=number)[0] for number, size in enumerate(sizes)])
    batch = one.collate_unchanged(np.arange(4), data)
    patches = one.prepare(batch, CPU).patches
    assert patches is not None
    assert patches.bounds.diff().tolist() == [5, 7, 9, 5]
    assert batch.counts == {"class": 4, "images": 4, "tokens": 26, "squares": 25 + 49 + 81 + 25}
    whole = logits(one, data, [0, 1, 2, 3])
    for row in range(4):
        torch.testing.assert_close(logits(one, data, [row]), whole[row : row + 1])


@pytest.mark.parametrize("config", NETWORKS)
def test_micro_batches_do_not_change_the_update(config: VisionConfig | ConvNetConfig) -> None:
    data = labelled(pixels(9))
    options = {"mixup": 0.8, "cutmix": 1.0, "label_smoothing": 0.1}
    first = update(task(config, CHANGES, **options), data, [[8, 0, 3, 1, 5, 7]])
    parts = update(task(config, CHANGES, **options), data, [[8, 0, 3], [1], [5, 7]])
    for name, weight in first.items():  # as a whole: AdamW divides a gradient of nearly 0 by its size
        assert (parts[name] - weight).norm() < 2e-4 * weight.norm(), name


def test_targets_are_probabilities_of_an_image_and_its_partner() -> None:
    one, data = task(mixup=0.8, label_smoothing=0.3), labelled(pixels(9))
    draws = Draws(3, 0, np.arange(9))
    prepared = one.prepare(one.collate(draws, data), CPU)
    torch.testing.assert_close(prepared.targets.sum(1), torch.ones(9))
    own, other = np.arange(9) % 3, draws.partners(9).indices % 3
    rows = torch.arange(9)
    assert (prepared.targets >= 0.1 - 1e-6).all()
    torch.testing.assert_close(
        (prepared.targets - 0.1)[rows, own] + (prepared.targets - 0.1)[rows, other] * torch.from_numpy(own != other),
        torch.full((9,), 0.7),
    )


def test_an_evaluation_is_of_the_plain_images_and_labels() -> None:
    one, data = task(augmentation=CHANGES, mixup=0.8, label_smoothing=0.3), labelled(pixels(6))
    prepared = one.prepare(one.collate_unchanged(np.arange(6), data), CPU)
    assert torch.equal(prepared.targets, F.one_hot(torch.arange(6) % 3).float())
    plain = task().prepare(task().collate_unchanged(np.arange(6), data), CPU)
    assert prepared.patches is not None
    assert plain.patches is not None
    assert torch.equal(prepared.patches.pixels, plain.patches.pixels)


def test_the_loss_without_mixtures_is_the_usual_cross_entropy() -> None:
    one, data = task().eval(), labelled(pixels(6))
    batch = one.collate_unchanged(np.arange(6), data)
    term = one(one.prepare(batch, CPU))["class"]
    found = one.logits(batch, CPU)
    torch.testing.assert_close(term.total, F.cross_entropy(found, torch.arange(6) % 3, reduction="sum"))
    assert int(term.correct) == int((found.argmax(1) == torch.arange(6) % 3).sum())


@pytest.mark.parametrize("distillation", ["soft", "hard"])
def test_a_network_has_nothing_to_learn_from_itself(distillation: str) -> None:
    teacher, data = task(), labelled(pixels(6))
    one = task(
        teacher=lambda images: class_logits(teacher.model, images, teacher.normalisation), distillation=distillation
    )
    prepared = one.prepare(one.collate(Draws(1, 0, np.arange(6)), data), CPU)
    found = one.train()(prepared)["teacher"]
    assert prepared.taught is not None
    if distillation == "soft":
        found.total.backward()
        assert float(found.total.detach()) == pytest.approx(0, abs=1e-4)
        gradients = [weight.grad.norm() for weight in one.parameters() if weight.grad is not None]
        assert max(map(float, gradients)) < 1e-4
    else:
        expected = F.cross_entropy(prepared.taught, prepared.taught.argmax(1), reduction="sum")
        torch.testing.assert_close(found.total, expected)


def test_the_distillation_token_alone_learns_from_the_teacher() -> None:
    data = labelled(pixels(6))
    one = task(DEIT, teacher=lambda images: torch.eye(3)[torch.arange(6) % 3])
    terms = one.train()(one.prepare(one.collate(Draws(1, 0, np.arange(6)), data), CPU))
    assert (terms["class"].weight, terms["teacher"].weight) == (0.5, 0.5)
    names = ("model.classifier.dense.weight", "model.distillation_classifier.dense.weight")
    weights = [dict(one.named_parameters())[name] for name in names]
    for term, learns in (("class", 0), ("teacher", 1)):
        gradients = torch.autograd.grad(terms[term].total, weights, retain_graph=True, allow_unused=True)
        assert gradients[learns].norm() > 0
        assert gradients[1 - learns] is None


def test_a_teacher_sees_the_augmented_images() -> None:
    seen = list[Tensor]()
    data = labelled(pixels(6))
    one = task(augmentation=CHANGES, teacher=lambda images: (seen.append(images), torch.zeros(6, 3))[1], mixup=0.8)
    prepared = one.prepare(one.collate(Draws(1, 0, np.arange(6)), data), CPU)
    again = one.prepare(one.collate(Draws(1, 0, np.arange(6)), data), CPU)
    assert torch.equal(seen[0], seen[1])
    assert prepared.patches is not None
    assert again.patches is not None
    assert torch.equal(prepared.patches.pixels, again.patches.pixels)
    assert not torch.equal(seen[0], data.stacked() / 255)
    assert one.eval().prepare(one.collate_unchanged(np.arange(6), data), CPU).taught is None


@pytest.mark.parametrize("config", [DEIT, CONVNET])
def test_a_teacher_of_a_folder_says_what_it_knows_in_the_order_of_the_learner(
    config: VisionConfig | ConvNetConfig, tmp_path: Path
) -> None:
    known = task(config).eval()
    processor = ImageProcessor(resize=None, mean=(0.1, 0.2, 0.3), std=(0.3, 0.2, 0.1))
    image_classifiers.write(tmp_path, config, known.model.state_dict(), CLASSES, processor, {})
    images = pixels(4) / 255
    expected = class_logits(known.model, images, Normalisation(processor.mean, processor.std))
    teacher = partial(Teacher, tmp_path, compiles=True)
    torch.testing.assert_close(teacher(CLASSES, 3)(images), expected)
    torch.testing.assert_close(teacher(CLASSES[::-1], 3)(images), expected.flip(1))
    with pytest.raises(FolderError, match=r"reads 3 channels, and the network that learns 1\. Train one on images"):
        teacher(CLASSES, 1)
    with pytest.raises(FolderError, match=r"and the images are of 2 classes \('bright', 'dark'\)"):
        teacher(CLASSES[:2], 3)


def test_a_linear_probe_trains_the_classifier_alone() -> None:
    data, before = labelled(pixels(6)), task().state_dict()
    after = update(task(linear_probe=True), data, [[0, 1, 2, 3]])
    changed = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
    assert changed == {"model.classifier.dense.weight", "model.classifier.dense.bias"}


def test_muon_is_for_the_matrices_of_the_layers() -> None:
    names = dict(task().named_parameters())
    matrices = task().hidden_matrices()
    assert len(matrices) == 2 * 4
    assert all(names[name].ndim == 2 for name in matrices)
    with pytest.raises(RecipeError, match="no hidden matrix is trained here that Muon could update"):
        Optimizer(task(CONVNET), OptimizerConfig(hidden_optimizer="muon"), hidden_matrices={})


def test_what_a_network_cannot_read_is_refused() -> None:
    mixed = labelled([pixels(1, 8, 8)[0], pixels(1, 12, 8)[0]])
    with pytest.raises(TextError, match="are of several sizes, and a convolutional network reads one"):
        logits(task(CONVNET), mixed, [0, 1])
    with pytest.raises(TextError, match="of 4 x 8 pixels are too small"):
        logits(task(CONVNET), labelled(pixels(2, 4, 8)), [0, 1])
    one = task(mixup=0.5)
    with pytest.raises(RecipeError, match="images of several sizes cannot be mixed"):
        one.prepare(one.collate(Draws(1, 0, np.arange(2)), mixed), CPU)
    with pytest.raises(ValueError, match="are shares, from 0 to 1"):
        ImageClassification.Config(label_smoothing=1.5)
    with pytest.raises(ValueError, match=r"temperature is 0\.0\. Give more than 0"):
        ImageClassification.Config(temperature=0.0)


@pytest.mark.exhaustive
@pytest.mark.slow("compiles")
def test_a_step_on_images_is_one_graph() -> None:
    run(__file__, "image_graph.py", "without_a_device")


@pytest.mark.gpu
@pytest.mark.slow("compiles")
def test_steps_on_images_are_captured() -> None:
    run(__file__, "image_graph.py", "on_a_device")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_preparing_images_waits_for_nothing_on_the_device() -> None:
    one, data = task(VIT, CHANGES, mixup=0.8, cutmix=1.0).cuda(), labelled(pixels(9))
    batch = one.collate(Draws(1, 0, np.arange(9)), data).map_tensors(Tensor.pin_memory)
    expected = one.prepare(batch, torch.device("cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = one.prepare(batch, torch.device("cuda"))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(found.targets, expected.targets)
