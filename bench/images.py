"""Vision transformers beside transformers' ViT in one run: images a second in training steps and in inference.

    python bench/images.py [--device cuda] [--members vit-small vit-base] [--batch 256] [--size 224] [--patch 16]
        [--part inference training augmented mixed masked attention] [--rounds 5] [--clock wall]
        [--out bench/results/images.json]

Both networks have the same sizes and random weights, and their logits are compared. transformers reads normalised
pixels that are on the device already, by its eager attention and by SDPA, on a GPU also compiled; our time holds the
way from bytes to patches. A training step of ours is the trainer's, with AdamW and clipping, on a GPU compiled and
captured; theirs is forward, backward, clipping and torch's fused AdamW. `augmented`: ours with the changes and mixtures
of images that DeiT is trained with. `mixed`: images of 160 to 288 pixels a side, in one flat batch without padding and
by our own padded kernel. `masked`: a step of a masked autoencoder. `attention`:
our kernels for a CPU alone, by the number of tokens. Rounds alternate; figures are medians over the rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import record
from torch import Tensor

from bertsmith.data.images.augmentation import AugmentationConfig, augment_flat
from bertsmith.data.images.batch import FlatImages, ImageBatch
from bertsmith.data.images.draws import Draws
from bertsmith.data.images.labelled_images import LabelledImages
from bertsmith.models.hf.vision_layout import vision_layout_of
from bertsmith.models.image_classifier import Normalisation, image_patches, scaled
from bertsmith.models.masked_patches import Masking
from bertsmith.models.patch_decoder import PatchDecoderConfig
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_family import vision_member
from bertsmith.models.vision_transformer import ImageClassifier, VisionTransformer
from bertsmith.nn.attention import Sequences
from bertsmith.nn.init import initialise
from bertsmith.nn.kernel_choice import KernelName, self_attention
from bertsmith.objectives.masked_patches import MaskedImageBatch, MaskedPatches, choose
from bertsmith.tasks.image_classification import ImageClassification
from bertsmith.train import hardware
from bertsmith.train.forward import should_capture
from bertsmith.train.optimizers import Optimizer, OptimizerConfig
from bertsmith.train.step import Step
from bertsmith.train.train_config import TrainConfig

PARTS = ("inference", "training", "augmented", "mixed", "masked", "attention")
CLASSES = 1000
SIDES = (160, 288)  # of images of mixed sizes, in pixels
LENGTHS = (17, 50, 65, 101, 145, 197, 257, 577)  # tokens, for attention alone
UNCHANGED = AugmentationConfig(padding=0, flip=False)
OF_DEIT = AugmentationConfig(operations=2, erasing=0.25)
CALLS = 10  # in a round on a GPU, where the host prepares a step while the device computes the one before
HALVES = Normalisation((0.5,) * 3, (0.5,) * 3)
RATE = 1e-4

Work = Callable[[], Any]


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(work: dict[str, Work], options: argparse.Namespace, device: torch.device) -> dict[str, list[float]]:
    """The seconds of a call of each contender in each round, after a warm-up; they take turns."""
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    calls = CALLS if device.type == "cuda" else 1
    for one in work.values():
        for _ in range(3 if device.type == "cuda" else 1):
            one()
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(options.rounds):
        for name, one in work.items():
            wait(device)
            began = clock()
            for _ in range(calls):
                one()
            wait(device)
            found[name].append((clock() - began) / calls)
    return found


def figures(seconds: dict[str, list[float]], images: int) -> dict[str, Any]:
    """Images a second of each contender, and how many times faster ours is than the best of the others, by round."""
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    table: dict[str, Any] = {
        name: {"images_per_second": images / medians[name], "seconds": each} for name, each in seconds.items()
    }
    others = [name for name in seconds if not name.startswith("bertsmith")]
    if others:
        best = min(others, key=medians.__getitem__)
        ours = min((name for name in seconds if name not in others), key=medians.__getitem__)
        ratios = [theirs / mine for theirs, mine in zip(seconds[best], seconds[ours], strict=True)]
        table["ratio"] = {"of": ours, "to": best, "median": statistics.median(ratios), "least": min(ratios)}
    return table


def reference(config: VisionConfig, attention: str, device: torch.device) -> Any:
    """transformers' classifier of the same sizes."""
    import transformers

    keys = vision_layout_of(config).to_config_json(config, ())
    table = {number: str(number) for number in range(CLASSES)}
    theirs = transformers.ViTConfig(**keys, id2label=table, attn_implementation=attention)
    return transformers.ViTForImageClassification(theirs).to(device)


def ours_of(config: VisionConfig, device: torch.device) -> ImageClassifier:
    model = ImageClassifier(VisionTransformer(config), CLASSES)
    initialise(model, 0)
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():  # the last matrices of sublayers begin as 0, which would hide a difference
        if weight.ndim == 2 and not weight.any():
            torch.nn.init.normal_(weight, std=0.02, generator=generator)
    return model.to(device)


def same_weights(model: ImageClassifier, theirs: Any) -> None:
    """Give transformers' model our weights, by a folder."""
    import tempfile

    import transformers

    from bertsmith.models.hf import vision_folder

    with tempfile.TemporaryDirectory() as folder:
        names = [str(number) for number in range(CLASSES)]
        vision_folder.write(folder, model.trunk.config, model.state_dict(), names)
        saved = transformers.ViTForImageClassification.from_pretrained(folder)
        theirs.load_state_dict(saved.state_dict())


def bytes_of(count: int, size: int) -> Tensor:
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def flat(images: list[Tensor]) -> FlatImages:
    values = torch.cat([image.flatten() for image in images])
    return FlatImages(values=values, shapes=tuple(tuple(image.shape) for image in images))


def inference(config: VisionConfig, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Logits of a batch. On a CPU in float32, on a GPU in bfloat16; theirs also compiled there."""
    images = bytes_of(options.batch, config.image_size)
    images = images.pin_memory() if device.type == "cuda" else images
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = ours_of(config, device).to(dtype).eval()

    def own(kernel: KernelName | None = None, network: Any = model) -> Tensor:
        with torch.inference_mode():
            patches = image_patches(config, scaled(images.to(device, non_blocking=True)), HALVES)
            return network(patches, kernel).mean

    pixels = ((images.float() / 255 - 0.5) / 0.5).to(device, dtype)
    work: dict[str, Work] = {"bertsmith": own}
    for kernel in ("dense", "grouped") if device.type == "cpu" else ():
        work[f"bertsmith, {kernel}"] = partial(own, kernel)
    if device.type == "cuda":
        work["bertsmith, compiled"] = partial(own, network=torch.compile(model, dynamic=False))
    for attention in ("sdpa", "eager"):
        theirs = reference(config, attention, device).eval()
        same_weights(model, theirs)
        theirs = theirs.to(dtype)
        contenders = {attention: theirs}
        if device.type == "cuda":
            contenders[f"{attention}, compiled"] = torch.compile(theirs)
        for name, one in contenders.items():
            work[f"transformers, {name}"] = torch.inference_mode()(lambda one=one: one(pixels).logits)
    off = float((own().float() - work["transformers, sdpa"]().float()).abs().max())
    return {**figures(measure(work, options, device), len(images)), "off": off}


def pinned(batch: Any, device: torch.device) -> Any:
    """A batch as a loader gives it."""
    return batch.map_tensors(Tensor.pin_memory) if device.type == "cuda" else batch


def training(config: VisionConfig, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """A step: forward, backward, clipping and AdamW."""
    images, labels = bytes_of(options.batch, config.image_size), torch.arange(options.batch) % CLASSES
    lengths = [1 + config.grid**2] * len(images)
    counts = {"class": len(images), "tokens": sum(lengths), "squares": sum(length**2 for length in lengths)}
    batch = ImageBatch(images=flat([*images]), labels=labels, draws=None, counts=counts)
    task = ImageClassification(
        ours_of(config, device),
        ImageClassification.Config(),
        tuple(str(number) for number in range(CLASSES)),
        augmentation=UNCHANGED,
        normalisation=HALVES,
    )
    step = step_of(task, device)
    work: dict[str, Work] = {"bertsmith": partial(run_step, step, [pinned(batch, device)])}
    pixels, targets = ((images.float() / 255 - 0.5) / 0.5).to(device), labels.to(device)
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    for attention in ("sdpa", "eager"):
        for compiled in (False, True) if device.type == "cuda" else (False,):
            name = f"transformers, {attention}" + (", compiled" if compiled else "")
            work[name] = their_step(reference(config, attention, device), pixels, targets, precision, compiled)
    return figures(measure(work, options, device), len(images))


def augmented(config: VisionConfig, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """A step on images as they are, and on changed and mixed ones."""
    images, labels = bytes_of(options.batch, config.image_size), np.arange(options.batch) % CLASSES
    classes = tuple(str(number) for number in range(CLASSES))
    kept = {"locations": list(classes), "dropped": {}, "bad": "", "fingerprint": "none", "digests": labels}
    dataset = LabelledImages(images=images, labels=labels, classes=classes, **kept)
    changes = {
        "as they are": (UNCHANGED, ImageClassification.Config()),
        "as in DeiT": (OF_DEIT, ImageClassification.Config(mixup=0.8, cutmix=1.0, label_smoothing=0.1)),
    }
    work: dict[str, Work] = {}
    for name, (augmentation, settings) in changes.items():
        model = ours_of(config, device)
        task = ImageClassification(model, settings, classes, augmentation=augmentation, normalisation=HALVES)
        batch = task.collate(Draws(0, 0, np.arange(options.batch)), dataset)
        work[f"bertsmith, {name}"] = partial(run_step, step_of(task, device), [pinned(batch, device)])
        work[f"bertsmith, {name}, only prepared"] = partial(task.prepare, pinned(batch, device), device)
    return figures(measure(work, options, device), len(images))


def step_of(objective: Any, device: torch.device) -> Step:
    """The trainer's own step, as a run on this device has it."""
    plan = TrainConfig(steps=1)
    objective = objective.to(device).train()
    precision = hardware.select_precision("auto" if device.type == "cuda" else "float32", device)
    captured = should_capture(objective, plan, precision, device)
    optimizer = Optimizer(objective, OptimizerConfig(learning_rate=RATE), capturable=captured)
    return Step(objective, optimizer, plan, precision)


def run_step(step: Step, batches: list[Any]) -> None:
    step(batches, 0, 1.0)


def their_step(model: Any, pixels: Tensor, targets: Tensor, precision: torch.dtype, compiled: bool) -> Work:
    model = model.train()
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    device = pixels.device.type

    def step() -> None:
        with torch.autocast(device, precision, enabled=precision != torch.float32):
            loss = forward(pixels, labels=targets).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def mixed(config: VisionConfig, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Images of many sizes: flat, and padded to the longest, which is what a network without bounds would do."""
    patch, dice = config.patch_size, np.random.default_rng(0)
    scale = config.image_size / 224
    sides = dice.integers(round(SIDES[0] * scale) // patch, round(SIDES[1] * scale) // patch + 1, (options.batch, 2))
    images = [torch.from_numpy(dice.integers(0, 256, (3, *side), np.uint8)) for side in (sides * patch).tolist()]
    lengths = 1 + sides.prod(1)
    counts = {"class": len(images), "tokens": int(lengths.sum()), "squares": int((lengths**2).sum())}
    labels = torch.arange(len(images)) % CLASSES
    batch = ImageBatch(images=flat(images), labels=labels, draws=None, counts=counts)
    read = pinned(batch.images, device)
    found: dict[str, Any] = {
        "tokens": int(lengths.sum()),
        "padded": {"flat": 0, "padded": int(len(lengths) * lengths.max() - lengths.sum())},
    }
    inferences: dict[str, Work] = {}
    steps: dict[str, Work] = {}
    for name, kernel in (("bertsmith, flat", None), ("bertsmith, padded", "padded")):
        model = ours_of(config, device)
        model.trunk.kernel = kernel  # type: ignore[assignment]
        labelled = tuple(str(number) for number in range(CLASSES))
        settings = ImageClassification.Config()
        task = ImageClassification(model, settings, labelled, augmentation=UNCHANGED, normalisation=HALVES)
        steps[name] = partial(run_step, step_of(task, device), [pinned(batch, device)])
        other = ours_of(config, device).eval()
        other = other.to(torch.bfloat16) if device.type == "cuda" else other
        other.trunk.kernel = kernel  # type: ignore[assignment]
        inferences[name] = torch.inference_mode()(
            lambda other=other: (
                other(image_patches(config, scaled(augment_flat(read.to(device), None, UNCHANGED)), HALVES)).mean
            )
        )
    found["inference"] = figures(measure(inferences, options, device), len(images))
    found["training"] = figures(measure(steps, options, device), len(images))
    return found


def masked(config: VisionConfig, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """A step of a masked autoencoder, with the paper's decoder."""
    import transformers

    fixed = replace(config, positions="sinusoidal", norm_eps=1e-12)
    images = bytes_of(options.batch, config.image_size)
    objective = MaskedPatches(VisionTransformer(fixed), MaskedPatches.Config(), UNCHANGED, HALVES)
    initialise(objective, 0)
    draws, sizes = Draws(0, 0, np.arange(len(images))), np.full(len(images), config.grid**2)
    chosen = choose(draws, sizes, 0.75)
    tokens = len(images) * (1 + config.grid**2)
    counts = {"pixels": int(chosen.sum()), "tokens": tokens, "squares": tokens * (1 + config.grid**2)}
    batch = MaskedImageBatch(images=flat([*images]), draws=None, masking=Masking.of(chosen, sizes, 1), counts=counts)
    work: dict[str, Work] = {"bertsmith": partial(run_step, step_of(objective, device), [pinned(batch, device)])}
    keys = vision_layout_of(fixed).to_config_json(fixed, (), PatchDecoderConfig())
    pixels = ((images.float() / 255 - 0.5) / 0.5).to(device)
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    for compiled in (False, True) if device.type == "cuda" else (False,):
        theirs = transformers.ViTMAEConfig(**keys, norm_pix_loss=True, attn_implementation="sdpa")
        model = transformers.ViTMAEForPreTraining(theirs).to(device).train()
        forward = torch.compile(model) if compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)

        def step(model: Any = model, forward: Any = forward, optimizer: Any = optimizer) -> None:
            with torch.autocast(device.type, precision, enabled=precision != torch.float32):
                loss = forward(pixels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        work["transformers, sdpa" + (", compiled" if compiled else "")] = step
    return figures(measure(work, options, device), len(images))


def attention(config: VisionConfig, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Microseconds of a CPU's clock for a token, least and median, of attention alone without gradients."""
    if device.type != "cpu":
        return {}
    found: dict[str, Any] = {}
    for length in LENGTHS:
        rows = max(2, 2000 // length)
        bounds = torch.arange(0, (rows + 1) * length, length, dtype=torch.int32)
        sequences = Sequences(bounds, length, rows * length)
        qkv = torch.randn(rows * length, 3, config.heads, config.width // config.heads)
        kernels = {name: self_attention(name, sequences) for name in ("tiled", "dense", "grouped")}  # type: ignore[arg-type]
        times: dict[str, list[float]] = {name: [] for name in kernels}
        with torch.inference_mode():
            for _ in range(4 * options.rounds):
                for name, kernel in kernels.items():
                    began = time.process_time()
                    kernel.attend_qkv(qkv, 0.0)
                    times[name].append(1e6 * (time.process_time() - began) / (rows * length))
        found[str(length)] = {name: [min(each), statistics.median(each)] for name, each in times.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--members", nargs="+", default=["vit-small", "vit-base"])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--batch", type=int, help="images; 256 by default on a GPU, 8 on a CPU")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--patch", type=int, default=16, help="pixels of a side of a patch")
    parser.add_argument("--layers", type=int, help="of the networks; their own by default")
    parser.add_argument("--rounds", type=int, default=5)
    clock = "of the wall; or the seconds of all threads together, for a CPU that others use, too"
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help=clock)
    parser.add_argument("--out", type=Path, default=Path("bench/results/images.json"))
    options = parser.parse_args()
    device = hardware.select_device(options.device)
    options.batch = options.batch or (256 if device.type == "cuda" else 8)
    results: dict[str, Any] = {}
    for member in options.members:
        config = replace(vision_member(member), image_size=options.size, patch_size=options.patch, norm_eps=1e-6)
        config = replace(config, layers=options.layers or config.layers)
        results[member] = {}
        for part in options.part:
            results[member][part] = globals()[part](config, options, device)
            print(member, part, {name: summary(one) for name, one in results[member][part].items()}, flush=True)
            shape = {"batch": options.batch, "size": options.size, "patch": options.patch}
            shape |= {"rounds": options.rounds, "clock": options.clock, "threads": torch.get_num_threads()}
            record(options.out, {**shape, "results": results}, hardware.describe(device))


def summary(found: Any) -> Any:
    """A figure for the console."""
    if not isinstance(found, dict):
        return found
    if "images_per_second" in found:
        return round(found["images_per_second"], 1)
    return {name: summary(one) for name, one in found.items()} if "seconds" not in found else found


if __name__ == "__main__":
    main()
