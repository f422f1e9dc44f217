"""A loaded model of images: a network with its classes, and the preparation of its images, opened from a folder.

It knows its classes and its device, saves itself, and shows what is inside; `image_model.py` has the calls that use it.
"""

from pathlib import Path
from typing import Any, get_args

import torch

from bertsmith import files
from bertsmith.data.images.decoding import DecodingConfig
from bertsmith.errors import FolderError, RecipeError, suggest
from bertsmith.inference.embedder import LayerJoin, Precision
from bertsmith.inference.image_inputs import NamedImage, as_images, pixels_of
from bertsmith.inference.image_preparation import ImageSize, check_size, normalise, resized
from bertsmith.inference.inputs import short_repr
from bertsmith.inference.reconstruction import reconstruct_by_folder
from bertsmith.inference.save import MODEL_CARD, OWN_CONFIG_KEYS
from bertsmith.insight.image_inspection.inspection import ImageInspection, inspect
from bertsmith.insight.image_inspection.subject import ImageSubject, ReadImage
from bertsmith.models.convnet import ConvNet, ConvNetClassifier
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import image_classifiers, vision_folder
from bertsmith.models.hf.finetuned import PROBLEM_TYPE, PROBLEMS, distinct
from bertsmith.models.hf.image_classifiers import NETWORK, ImageConfig, ImageFolder
from bertsmith.models.hf.vision_folder import VisionFolder
from bertsmith.models.hf.vision_layout import vision_layout_of
from bertsmith.models.image_classifier import AnyImageClassifier, image_classifier
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_transformer import VisionTransformer

DEFAULT_SIDE = 32  # pixels, of a convolutional network whose folder names no size
CHOICES: dict[str, tuple[Any, ...]] = {
    "pooling": ("first", "mean"),  # the class token, or the mean of all patches
    "layer_join": get_args(LayerJoin),
    "size": get_args(ImageSize),
    "precision": get_args(Precision),
}
MAX_LABELS_SHOWN = 6  # labels in the repr of a model


class LoadedImageModel:
    """A network of images with its classes. Abstract: `ImageModel` is the class that `bertsmith.load` returns."""

    def __init__(self, opened: VisionFolder | ImageFolder, path: str, device: torch.device) -> None:
        if opened.config.channels not in (1, 3):
            fact = f"reads images of {opened.config.channels} channels"
            raise FolderError(path, fact, "Only grey images (1) and those in red, green and blue (3) can be read")
        self.path, self.processor, self._opened = path, opened.processor, opened
        self.labels = distinct(opened.labels)
        self.config: ImageConfig = opened.config
        self.network: AnyImageClassifier | None = None
        if isinstance(opened, ImageFolder):
            self.network = image_classifier(opened.config, len(opened.labels))
            self.network.load_state_dict(opened.state_dict)
            self.network.to(device).eval()
        elif "classifier" in opened.parts:
            self.network = opened.classifier().to(device)
        trunk = self.network.trunk if self.network is not None else self._vision().trunk().to(device)
        self.trunk: VisionTransformer | ConvNet = trunk

    def __repr__(self) -> str:
        return f"ImageModel({self.description}, '{self.path}')"

    @property
    def description(self) -> str:
        """Kind, size, task and device in a line.

        >>> bertsmith.load("runs/photos").description
        'vit, 3 layers of width 16, ... parameters, images of 16 x 16 in patches of 4 x 4, ..., cpu'
        """
        config, module = self.config, self.network or self.trunk
        count = sum(weight.numel() for weight in module.parameters())
        parameters = f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count:,}"
        side, layers, patches = self.image_size, "", ""
        if isinstance(config, VisionConfig):
            layers = f"{config.layers} layers of "
            patches = f" in patches of {config.patch_size} x {config.patch_size}"
        size = f"{layers}width {config.width}, {parameters} parameters"
        return f"{self.kind}, {size}, images of {side} x {side}{patches}, {self.purpose}, {self.device}"

    @property
    def kind(self) -> str:
        """The model type, as transformers names it.

        >>> bertsmith.load("runs/photos").kind
        'vit'
        """
        return vision_layout_of(self.config).model_type if isinstance(self.config, VisionConfig) else NETWORK

    @property
    def purpose(self) -> str:
        """The classes, or that there are none, in a few words.

        >>> bertsmith.load("runs/photos").purpose
        'classes (cat, dog, bird)'
        """
        if self.network is None:
            return "features of images"
        more = ", ..." if len(self.labels) > MAX_LABELS_SHOWN else ""
        return f"classes ({', '.join(self.labels[:MAX_LABELS_SHOWN])}{more})"

    @property
    def device(self) -> torch.device:
        """The device that the weights are on.

        >>> bertsmith.load("runs/photos", device="cpu").device.type
        'cpu'
        """
        return next(self.trunk.parameters()).device

    @property
    def image_size(self) -> int:
        """The side in pixels of the images that the network was trained on; for others positions are interpolated.

        >>> bertsmith.load("runs/photos").image_size
        16
        """
        if isinstance(self.config, VisionConfig):
            return self.config.image_size
        return (self.processor.crop or self.processor.resize or (DEFAULT_SIDE, DEFAULT_SIDE))[0]

    @property
    def vector_width(self) -> int:
        """The numbers of an image's vector from one layer.

        >>> bertsmith.load("runs/photos").vector_width
        16
        """
        return self.config.width if isinstance(self.config, VisionConfig) else self.config.output_width

    @property
    def problem(self) -> str:
        """What the classifier predicts: `single_label`, or `multi_label`, as it does with a single output.

        >>> bertsmith.load("runs/photos").problem
        'single_label'
        """
        keys = self._opened.config_json if isinstance(self._opened, VisionFolder) else {}
        problem = PROBLEMS.get(str(keys.get(PROBLEM_TYPE)), "single_label")
        return "multi_label" if len(self.labels) == 1 and problem == "single_label" else problem

    def inspect(self, images: Any, *, size: str = "model", attribute: bool = True) -> ImageInspection:
        """What the model looks at, predicts by layer, and decides by, of an image or of a few.

        In a notebook the result shows itself as a page; `save` writes it as .html or .json. Without `attribute`
        (integrated gradients, which patches decided) it is several times as fast.

        >>> bertsmith.load("runs/photos").inspect("photos/cat.png")
        ImageInspection
        photos: photos/cat.png, 16 patches of 4 x 4 pixels
          ...
          ...: log-odds ..., of the mean colour ..., gap 0...% at ... steps
        """
        check_choices(size=size)
        given, _ = as_images(images)
        return inspect(self.subject(), [self._read(image, size) for image in given], attribute_patches=attribute)

    def subject(self) -> ImageSubject:
        """The model as inspections show it.

        >>> bertsmith.load("runs/photos").subject().name
        'photos'
        """
        path = Path(self.path)
        name = path.resolve().parent.name if path.name == "model" else path.resolve().name
        if not isinstance(self.trunk, VisionTransformer) or isinstance(self.network, ConvNetClassifier):
            fact = "is a convolutional network, and has no attention to look at"
            raise FolderError(self.path, fact, "Inspect a ViT or a DeiT")
        check_single_label(self, "inspected")
        return ImageSubject(name, self.kind, self.purpose, self.trunk, self.network, self.labels)

    def _vision(self) -> VisionFolder:
        """The folder of a vision transformer; `subject` has refused others."""
        assert isinstance(self._opened, VisionFolder)
        return self._opened

    def _read(self, image: NamedImage, size: str) -> ReadImage:
        """The image as the network reads it: its whole patches, as pixels and as numbers."""
        channels: Any = self.config.channels
        pixels = pixels_of(image, DecodingConfig(channels=channels))
        pixels = pixels if size == "own" else resized(pixels, self.processor)
        opened, values = self._vision(), normalise(pixels, self.processor)
        check_size(image.name, values, self.config)
        patch = opened.config.patch_size
        height, width = (side // patch * patch for side in pixels.shape[1:])
        pixels, reconstruction = pixels[:, :height, :width], None
        if opened.decoder_config is not None:
            [found] = reconstruct_by_folder(opened, [torch.from_numpy(pixels.copy())])
            reconstruction = found.masked, found.reconstructed, found.original
        return ReadImage(image.name, pixels, values, reconstruction)

    def save(self, folder: str | Path) -> Path:
        """Write a model folder, which `bertsmith.load` and transformers open, and return its path.

        >>> photos = bertsmith.load("runs/photos")
        >>> copy = bertsmith.load(photos.save("photos-copy"))
        >>> copy.predict("photos/cat.png") == photos.predict("photos/cat.png")
        True
        """
        if not isinstance(folder, str | Path) or not str(folder):
            raise FolderError("folder", f"is {short_repr(folder)}", "Give a path")
        if self.network is None:
            own = {f"trunk.{name}": weight for name, weight in self.trunk.state_dict().items()}
        else:
            own = self.network.state_dict()
        opened, weights = self._opened, {**self._opened.state_dict, **own}  # with a pooler, which is not used
        keys = opened.config_json if isinstance(opened, VisionFolder) else {}
        extra = {key: keys[key] for key in (*OWN_CONFIG_KEYS, PROBLEM_TYPE) if key in keys}
        with folders.atomic_folder(folder) as target:
            if isinstance(opened, VisionFolder):
                named: dict[str, Any] = {"extra": extra, "decoder": opened.decoder_config}
                vision_folder.write(target, opened.config, weights, opened.labels, self.processor, **named)
            else:
                image_classifiers.write(target, self.config, weights, opened.labels, self.processor, extra)
            if (card := Path(self.path) / MODEL_CARD).is_file():
                files.write(target / MODEL_CARD, card.read_bytes())
        return Path(folder)


def check_single_label(model: LoadedImageModel, verb: str) -> None:
    """Refuse a model for something that is defined for one class of each image alone."""
    if model.network is not None and model.problem != "single_label":
        fact = f"was trained for {model.problem.replace('_', '-')}, and only models of one class an image are {verb}"
        raise FolderError(model.path, fact, "Use embed")


def check_choices(**given: Any) -> None:
    """Refuse a value that is none of the choices, with the nearest one."""
    for name, value in given.items():
        if value not in CHOICES[name]:
            raise RecipeError(name, f"is {short_repr(value)}", suggest(str(value), CHOICES[name]))
