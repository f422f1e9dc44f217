"""Vision transformers: patches of images of any size in one flat batch, positions at any resolution, two tokens."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts import run
from torch import Tensor

from bertsmith.errors import RecipeError, TextError
from bertsmith.models.patch_embedding import bicubic_weights, resized, sinusoids_2d
from bertsmith.models.patches import Patches, cut
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_family import VISION_FAMILY, vision_member
from bertsmith.models.vision_transformer import ImageClassifier, VisionTransformer
from bertsmith.nn.init import initialise

SMALL = VisionConfig(image_size=16, patch_size=4, width=16, layers=3, heads=2, feed_forward=24)
DISTILLED = replace(SMALL, distillation_token=True)
SIZES = [(16, 16), (8, 20), (16, 16), (4, 4), (20, 8)]
# Of the papers, with a classifier of 1000 classes; DeiT has two. MAE's encoders are ViT's.
PUBLISHED = {
    "vit-tiny": 5_717_416,
    "vit-small": 22_050_664,
    "vit-base": 86_567_656,
    "vit-large": 304_326_632,
    "deit-tiny": 5_910_800,
    "deit-small": 22_436_432,
    "deit-base": 87_338_192,
    "mae-tiny": 5_717_416,
    "mae-small": 22_050_664,
    "mae-base": 86_567_656,
    "mae-large": 304_326_632,
}


def images(sizes: list[tuple[int, int]], seed: int = 0) -> list[Tensor]:
    dice = torch.Generator().manual_seed(seed)
    return [torch.randn(3, *size, generator=dice) for size in sizes]


def built(config: VisionConfig) -> VisionTransformer:
    """A small network in which every part matters: no matrix is 0."""
    torch.manual_seed(0)
    network = VisionTransformer(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network.eval()


@pytest.mark.parametrize("name", VISION_FAMILY)
def test_a_member_has_the_published_number_of_parameters(name: str) -> None:
    config = vision_member(name)
    classifier = 1000 * (config.width + 1)
    assert config.parameter_count + classifier * config.special_tokens == PUBLISHED[name]


def test_an_unknown_member_is_refused_with_the_nearest() -> None:
    with pytest.raises(RecipeError, match=r"unknown member 'vit-bsae'. Did you mean 'vit-base'\?"):
        vision_member("vit-bsae")


def test_flops_are_those_of_the_paper() -> None:
    forward = vision_member("vit-base").flops(197, 0) * 197 / 3  # one image, multiplications and additions
    assert forward / 2 == pytest.approx(17.6e9, rel=0.01)  # DeiT's table 5 counts multiplications


@given(height=st.integers(4, 15), width=st.integers(4, 15), channels=st.integers(1, 3), size=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_the_patch_embedding_is_a_convolution(height: int, width: int, channels: int, size: int) -> None:
    dice = torch.Generator().manual_seed(0)
    batch = torch.randn(2, channels, height, width, generator=dice)
    kernel = torch.randn(5, channels, size, size, generator=dice)
    convolved = F.conv2d(batch, kernel, stride=size).flatten(2).transpose(1, 2)
    torch.testing.assert_close(cut(batch, size) @ kernel.flatten(1).T, convolved, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("special", [1, 2])
def test_images_of_any_sizes_lie_end_to_end(special: int) -> None:
    patches = Patches.from_images(images(SIZES), 4, special)
    lengths = [special + height * width // 16 for height, width in SIZES]
    assert patches.bounds.diff().tolist() == lengths
    assert patches.max_length == max(lengths)
    assert not patches.equal_lengths
    assert patches.grids == ((4, 4), (2, 5), (1, 1), (5, 2))
    assert len(patches.pixels) == len(patches.slots) == sum(lengths) - special * len(SIZES)  # no padding
    taken = {int(start) + number for start in patches.bounds[:-1] for number in range(special)}
    assert taken.isdisjoint(patches.slots.tolist())
    assert taken | {*patches.slots.tolist()} == {*range(sum(lengths))}
    special_rows, square, wide = range(special), range(special, special + 16), range(special + 16, special + 26)
    first_three = [*special_rows, *square, *special_rows, *wide, *special_rows, *square]
    assert patches.position_rows[: len(first_three)].tolist() == first_three
    assert Patches.from_images(images(SIZES[:1] * 2), 4, special).equal_lengths


def test_a_image_smaller_than_a_patch_is_refused() -> None:
    with pytest.raises(TextError, match=r"images: one of 3 x 8 pixels has no patch of 4 x 4. Make it larger"):
        Patches.from_images(images([(8, 8), (3, 8)]), 4)


@pytest.mark.parametrize("grid", [(5, 5), (3, 7), (1, 9), (24, 2)])
def test_positions_are_interpolated_as_by_torch(grid: tuple[int, int]) -> None:
    square = torch.randn(4, 4, 6, generator=torch.Generator().manual_seed(0))
    theirs = F.interpolate(square.permute(2, 0, 1)[None], grid, mode="bicubic", align_corners=False)[0]
    torch.testing.assert_close(resized(square, grid), theirs.permute(1, 2, 0), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(bicubic_weights(4, grid[0], square.device, square.dtype).sum(1), torch.ones(grid[0]))


def test_the_own_grid_has_the_learned_positions_themselves() -> None:
    embedding = built(SMALL).embedding
    assert embedding.position_table(((4, 4),)) is embedding.positions
    torch.testing.assert_close(embedding.position_table(((2, 2), (4, 4)))[5:], embedding.positions[1:])


@pytest.mark.parametrize("kernel", [None, "grouped", "tiled", "padded", "eager"])
@pytest.mark.parametrize("config", [SMALL, DISTILLED], ids=["vit", "deit"])
def test_a_image_has_the_same_vectors_alone_and_among_others(config: VisionConfig, kernel: str | None) -> None:
    network, all_images = built(config), images(SIZES)
    with torch.no_grad():
        together = network(Patches.from_images(all_images, 4, config.special_tokens), kernel)
        alone = [network(Patches.from_images([one], 4, config.special_tokens)) for one in all_images]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


def test_each_special_token_reaches_the_output_of_its_own() -> None:
    network = built(DISTILLED)
    model = ImageClassifier(network, 3, distilled=True).eval()
    for parameter in (*model.classifier.parameters(), *model.distillation_classifier.parameters()):
        torch.nn.init.normal_(parameter)
    patches = Patches.from_images(images(SIZES), 4, 2)
    logits = model(patches)
    states, starts = network(patches), patches.bounds[:-1].long()
    torch.testing.assert_close(logits.classes, model.classifier(states[starts]))
    torch.testing.assert_close(logits.distilled, model.distillation_classifier(states[starts + 1]))
    torch.testing.assert_close(logits.mean, (logits.classes + logits.distilled) / 2)
    single = ImageClassifier(network, 3).eval()(patches)
    assert single.mean is single.classes
    assert single.distilled is None


def test_two_classifiers_need_two_tokens() -> None:
    with pytest.raises(ValueError, match=r"no distillation token. Take a DeiT, or one classifier"):
        ImageClassifier(built(SMALL), 3, distilled=True)


@pytest.mark.slow("goes through every weight")
def test_every_weight_has_the_gradient_of_its_finite_difference() -> None:
    network = built(DISTILLED).double()
    patches = Patches.from_images([one.double() for one in images(SIZES)], 4, 2)
    way = torch.randn(len(patches.position_rows), 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def loss() -> Tensor:
        return (network(patches) * way).sum()

    loss().backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        direction = weight.grad / weight.grad.norm()
        found = []
        with torch.no_grad():
            for step in (1e-5, -2e-5):
                weight += step * direction
                found.append(loss())
            weight += 1e-5 * direction
        slope = (found[0] - found[1]) / 2e-5
        torch.testing.assert_close(slope, weight.grad.norm(), rtol=1e-5, atol=1e-5)


def test_a_step_of_mixed_sizes_gives_the_same_bits_again() -> None:
    found = []
    for _ in range(2):
        network = VisionTransformer(SMALL)
        initialise(network, 3)
        network(Patches.from_images(images(SIZES), 4)).pow(2).sum().backward()
        found.append([weight.grad for weight in network.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_freshly_initialised_layer_is_the_identity() -> None:
    network = VisionTransformer(SMALL).eval()
    initialise(network, 0)
    states = network.hidden_states(Patches.from_images(images(SIZES), 4))
    assert torch.equal(states[0], states[-2])
    assert network.embedding.special_tokens.detach().std() == pytest.approx(0.02, rel=0.5)
    assert network.embedding.projection.weight.detach().std() == pytest.approx(SMALL.patch_values**-0.5, rel=0.2)


def test_positions_begin_as_sines_and_cosines_of_row_and_column() -> None:
    network = VisionTransformer(SMALL)
    initialise(network, 0)
    grid, special = SMALL.grid, SMALL.special_tokens
    square = network.embedding.positions.detach()[special:].view(grid, grid, -1)
    assert torch.equal(square.flatten(0, 1), sinusoids_2d(grid, SMALL.width))
    torch.testing.assert_close(square.square().sum(2), torch.full((grid, grid), SMALL.width // 4 * 2.0))
    half = SMALL.width // 4 * 2
    assert torch.equal(square[0, :, :half], square[0, :1, :half].expand(grid, -1))  # one row
    assert torch.equal(square[:, 1, half : 2 * half], square[:1, 1, half : 2 * half].expand(grid, -1))  # one column
    likeness = (square[0, 0] * square[0]).sum(1)
    assert likeness[0] > likeness[1] > likeness[2]


def test_the_embeddings_are_dropped_out_in_training_only() -> None:
    network = built(replace(SMALL, dropout=0.5))
    patches = Patches.from_images(images(SIZES), 4)
    assert (network.embed(patches) != 0).all()
    dropped = (network.train().embed(patches) == 0).float().mean()
    assert dropped == pytest.approx(0.5, abs=0.1)


def test_attention_stays_within_a_image_and_sums_to_one() -> None:
    maps = built(SMALL).attention_maps(Patches.from_images(images(SIZES), 4))
    assert len(maps) == SMALL.layers
    assert [tuple(weights.shape) for weights in maps[0]] == [
        (2, 1 + height * width // 16, 1 + height * width // 16) for height, width in SIZES
    ]
    for weights in maps[1]:
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))


def test_the_matrices_are_those_of_the_layers() -> None:
    network = built(SMALL)
    assert len(network.matrices()) == 4 * SMALL.layers
    assert network.matrices()["layers.0.attention.qkv.weight"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "layers is 0. Give at least 1"),
        ({"channels": 0}, "channels is 0. Give at least 1"),
        ({"image_size": 3}, "images of 3 pixels have no patch of 4. Take a smaller patch_size"),
        ({"heads": 3}, "a width of 16 cannot be shared by 3 heads. Take a multiple"),
        ({"dropout": 1.0}, "dropout is 1.0. Give a share"),
        (
            {"width": 18, "positions": "sinusoidal"},
            "a width of 18 cannot be shared by four waves. Take a multiple of 4",
        ),
    ],
)
def test_impossible_sizes_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)  # type: ignore[arg-type]


@pytest.mark.exhaustive
@pytest.mark.slow("compiles")
def test_a_batch_of_mixed_sizes_is_one_graph() -> None:
    run(__file__, "vision_graph.py", "mixed_sizes_are_one_graph")


@pytest.mark.gpu
@pytest.mark.slow("compiles")
def test_on_a_gpu_a_step_of_mixed_sizes_never_waits() -> None:
    run(__file__, "vision_graph.py", "mixed_sizes_on_a_gpu")
