"""Scripts that compile a vision transformer; test_vision.py runs them where no shapes are checked at run time."""

import sys

import torch

from bertsmith.models.patches import Patches
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_transformer import ImageClassifier, VisionTransformer
from bertsmith.nn.init import initialise

CONFIG = VisionConfig(
    image_size=16, patch_size=4, width=64, layers=2, heads=4, feed_forward=96, distillation_token=True
)
SIZES = [(16, 16), (8, 20), (16, 16), (20, 8)]


def classifier() -> ImageClassifier:
    module = ImageClassifier(VisionTransformer(CONFIG), 3, distilled=True)
    initialise(module, 0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return module.eval()


def batch(sizes: list[tuple[int, int]], device: str = "cpu") -> Patches:
    dice = torch.Generator().manual_seed(0)
    images = [torch.randn(3, *size, generator=dice) for size in sizes]
    return Patches.from_images(images, 4, 2).to(device)


def gradients(module: ImageClassifier) -> list[torch.Tensor]:
    found = []
    for parameter in module.parameters():
        assert parameter.grad is not None
        found.append(parameter.grad)
        parameter.grad = None
    return found


def mixed_sizes_are_one_graph() -> None:
    """Images of one size and of several, whose logits and gradients are those of the plain network."""
    module = classifier()
    for patches in (batch([(16, 16)] * 2), batch(SIZES)):
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        plain, answer = module(patches, "padded").mean, compiled(patches, "padded").mean
        torch.testing.assert_close(answer, plain)
        plain.square().sum().backward()
        wanted = gradients(module)
        answer.square().sum().backward()
        torch.testing.assert_close(gradients(module), wanted)


def mixed_sizes_on_a_gpu() -> None:
    """A compiled step never waits for the device, and has the same gradients each time, but for the order in which
    those of positions on several grids are added up.
    """
    module = classifier().cuda()
    first = batch(SIZES, "cuda")
    exact = module(first, "eager").mean
    compiled = torch.compile(module, fullgraph=True, dynamic=False)
    found = []
    with torch.autocast("cuda", torch.bfloat16):
        for _ in range(3):
            answer = compiled(first).mean
            answer.float().square().sum().backward()
            found.append(gradients(module))
            torch.cuda.set_sync_debug_mode("error")
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(answer.float(), exact, rtol=0, atol=0.1)
    for one, other in zip(found[1], found[2], strict=True):
        assert (one - other).norm() <= 1e-3 * one.norm()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
