"""Batches of images hold the bytes of their images, and a position of a run says which these are."""

import numpy as np
import pytest
import torch
from torch import Tensor

from bertsmith.data.feed import PositionSource
from bertsmith.data.images.augmentation import AugmentationConfig, augment, augment_flat
from bertsmith.data.images.batch import FlatImages, ImageSource, gather, gather_unchanged
from bertsmith.data.images.draws import Draws
from bertsmith.data.images.labelled_images import LabelledImages

SIZES = [(9, 12), (8, 8), (9, 12), (11, 7), (8, 8)]
CHANGES = AugmentationConfig(padding=2, brightness=0.3, erasing=0.5)


def labelled(images: Tensor | list[Tensor]) -> LabelledImages:
    labels = np.arange(len(images)) % 3
    names = [str(number) for number in range(len(images))]
    kept = {"locations": names, "dropped": {}, "bad": "", "fingerprint": "test", "digests": labels}
    return LabelledImages(images=images, labels=labels, classes=("a", "b", "c"), **kept)


def noise(count: int, height: int = 8, width: int = 8) -> Tensor:
    random = np.random.default_rng(height * width)
    return torch.from_numpy(random.integers(0, 256, (count, 3, height, width)).astype(np.uint8))


@pytest.mark.parametrize("changes", [AugmentationConfig(padding=2), CHANGES])
def test_images_of_many_sizes_are_augmented_as_each_alone(changes: AugmentationConfig) -> None:
    images = [noise(1, *size)[0] for size in SIZES]
    draws = Draws(3, 1, np.array([4, 0, 2, 1, 3]))
    flat = FlatImages.of(images, draws.indices)
    assert len(flat.by_size()) == 3
    for number, (index, found) in enumerate(zip(draws.indices, augment_flat(flat, draws, changes), strict=True)):
        alone = augment(images[index][None], Draws(3, 1, draws.indices[number : number + 1]), changes)
        assert torch.equal(found, alone[0])


def test_images_of_many_sizes_cut_to_one_are_one_tensor() -> None:
    images = [noise(1, *size)[0] for size in SIZES]
    cut = augment_flat(FlatImages.of(images, np.arange(5)), None, AugmentationConfig(size=(6, 4)))
    assert isinstance(cut, Tensor)
    assert cut.shape == (5, 3, 6, 4)
    assert torch.equal(cut[1], images[1][:, 1:7, 2:6])


def test_every_epoch_has_an_order_of_its_own_in_whole_batches() -> None:
    source = ImageSource(labelled(noise(14)), 4, seed=1)
    assert isinstance(source, PositionSource)
    position, epochs = source.first_position(), list[np.ndarray]()
    for _ in range(2):
        rows = []
        for _ in range(3):
            rows.append(source(position).indices)
            assert source(position).epoch == len(epochs)
            position = source.next_position(position)
        epochs.append(np.concatenate(rows))
    assert source.epoch(position) == 2
    assert all(len(set(rows.tolist())) == 12 for rows in epochs)
    assert len(ImageSource(labelled(noise(3)), 4, seed=1)(0)) == 3
    assert (epochs[0] != epochs[1]).any()


def test_a_batch_has_its_images_labels_and_the_partners_of_mixtures() -> None:
    data = labelled(noise(10))
    draws = Draws(1, 0, np.array([7, 2]))
    batch = gather(data, draws, partners=True)
    rows = [7, 2, *draws.partners(10).indices.tolist()]
    assert torch.equal(batch.images.by_size()[0][1], data.stacked()[rows])
    assert batch.labels.tolist() == [row % 3 for row in rows]
    assert batch.draws is not None
    assert batch.draws.indices.tolist() == rows
    assert len(batch) == len(gather(data, draws)) == 2
    assert not gather(data, draws).mixed
    assert gather_unchanged(data, draws.indices).draws is None
    assert batch.to("meta").images.values.device.type == "meta"
    assert batch.to("meta").draws is batch.draws
