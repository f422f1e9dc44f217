"""An inspection of images: what a network looks at, predicts by layer, and decides by, as one page and as JSON."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup

from bertsmith import files
from bertsmith.errors import TextError
from bertsmith.insight.image_inspection.attention import ImageAttention
from bertsmith.insight.image_inspection.attributions import ImageAttribution, attribute
from bertsmith.insight.image_inspection.layer_classes import LayerClasses, classes_by_layer
from bertsmith.insight.image_inspection.subject import ImageSubject, ReadImage
from bertsmith.insight.inspection.inspection import ESCAPES, FRAME_HEIGHT
from bertsmith.insight.page import render
from bertsmith.insight.thumbnail import thumbnail
from bertsmith.models.recorded import record_layers

FORMAT = 1
MAX_IMAGES = 12  # on a page
MAX_TOKENS = 1_100  # of an image: attention compares each with each, and a page keeps the weights of all heads
PICTURE = 768  # pixels of the longer side of an image on the page, at most


@dataclass(frozen=True)
class InspectedImage:
    """The figures of one image: attention, classes by layer, and the patches that decided."""

    image: ReadImage
    attention: ImageAttention
    classes: LayerClasses | None
    attribution: ImageAttribution | None

    def figures(self) -> dict[str, Any]:
        """The figures as JSON values, with the image itself."""
        height, width = self.image.pixels.shape[1:]
        rebuilt = self.image.reconstruction
        return {
            "name": self.image.name,
            "image": thumbnail(self.image.pixels, PICTURE),
            "size": [height, width],
            "grid": list(self.attention.grid),
            "attention": self.attention.figures(),
            "classes": None if self.classes is None else self.classes.figures(),
            "attribution": None if self.attribution is None else self.attribution.figures(),
            "reconstruction": None if rebuilt is None else [thumbnail(one, PICTURE) for one in rebuilt],
        }


@dataclass(frozen=True, repr=False)
class ImageInspection:
    """All figures of a network on some images. In a notebook it shows itself as a page.

    >>> inspection = bertsmith.load("runs/photos").inspect("photos/cat.png")
    >>> inspection.save("inside-cat.html")
    PosixPath('inside-cat.html')
    >>> inspection.images[0].attribution.gap < 0.01
    True
    """

    subject: ImageSubject
    images: list[InspectedImage]

    def figures(self) -> dict[str, Any]:
        """All figures as JSON values; matrices are zlib-compressed bytes in base64.

        >>> sorted(bertsmith.load("runs/photos").inspect("photos").figures())
        ['format', 'images', 'model', 'special']
        """
        return {
            "format": FORMAT,
            "model": self.subject.figures(),
            "special": list(self.subject.special_tokens),
            "images": [one.figures() for one in self.images],
        }

    def json(self) -> str:
        """The figures as JSON that may stand inside a page.

        >>> bertsmith.load("runs/photos").inspect("photos/cat.png").json()[:12]
        '{"format":1,'
        """
        text = json.dumps(self.figures(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.translate(ESCAPES)

    def page(self) -> str:
        """The page, which is one file and loads nothing.

        >>> bertsmith.load("runs/photos").inspect("photos/cat.png").page()[:15]
        '<!doctype html>'
        """
        return str(render("inspect_image.html", title=f"Inside {self.subject.name}", data=Markup(self.json())))

    def save(self, path: str | Path) -> Path:
        """Write the page (.html) or the figures (.json), and return the path.

        >>> bertsmith.load("runs/photos").inspect("photos/cat.png").save("inside-cat.json").suffix
        '.json'
        """
        path = check_ending(path)
        with files.explain_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(path, (self.json() if path.suffix.lower() == ".json" else self.page()).encode())
        return path

    def _repr_html_(self) -> str:
        """The page in a frame, which may run its own script and nothing else of the notebook."""
        style = f"width:100%;height:{FRAME_HEIGHT}px;border:0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.page())}"></iframe>'

    def __repr__(self) -> str:
        return "\n".join(["ImageInspection", *self.summary()])

    def summary(self) -> list[str]:
        """A few lines for each image: its class, and by which share of the image it was decided.

        >>> bertsmith.load("runs/photos").inspect("photos/cat.png").summary()[0]
        'photos: photos/cat.png, 16 patches of 4 x 4 pixels'
        """
        lines = []
        for one in self.images:
            rows, columns = one.attention.grid
            size = self.subject.trunk.config.patch_size
            lines.append(f"{self.subject.name}: {one.image.name}, {rows * columns} patches of {size} x {size} pixels")
            if one.classes is not None:
                best = one.classes.top(len(one.classes.names) - 1, len(one.classes.layers) - 1)
                lines.append("  " + ", ".join(f"{label} {share:.1%}" for label, share in best))
            if one.attribution is not None:
                found = one.attribution
                outputs = f"log-odds {found.output:+.2f}, of the mean colour {found.baseline:+.2f}"
                lines.append(f"  {found.label}: {outputs}, gap {found.gap:.2%} at {found.steps} steps")
        return lines


def inspect(
    subject: ImageSubject,
    images: Sequence[ReadImage],
    *,
    attribute_patches: bool = True,
    progress: Callable[[str], object] = str,
) -> ImageInspection:
    """The inspection of some images, one after the other; without attributions it is several times as fast."""
    if not 1 <= len(images) <= MAX_IMAGES:
        raise TextError("images", f"are {len(images)}, and a page shows 1 to {MAX_IMAGES}", "Give a few")
    found = []
    for image in images:
        progress(image.name)
        found.append(_inspected(subject, image, attribute_patches))
    return ImageInspection(subject, found)


@torch.no_grad()
def _inspected(subject: ImageSubject, image: ReadImage, attribute_patches: bool) -> InspectedImage:
    trunk, patches, grid = subject.trunk, image.patches(subject), image.grid(subject)
    if patches.max_length > MAX_TOKENS:
        fact = f"has {patches.max_length:,} patches and special tokens, and a page shows {MAX_TOKENS:,}"
        raise TextError(image.name, fact, "Scale it down, or read it in the model's size")
    embedded = trunk.embed(patches)
    recorded = record_layers(trunk, embedded, trunk.attention_inputs(patches, embedded, "eager"))
    weights = torch.stack([layer[0] for layer in recorded.attention]).float().cpu().numpy()
    classes = classes_by_layer(subject, recorded.hidden)
    wanted = attribute_patches and classes is not None
    attribution = attribute(subject, image, classes.label) if wanted and classes is not None else None
    return InspectedImage(image, ImageAttention(weights, len(subject.special_tokens), grid), classes, attribution)


def check_ending(path: str | Path) -> Path:
    """The path of an output whose ending is known; asked before the work is done."""
    if not isinstance(path, str | Path) or not str(path):
        raise TextError("path", "is missing", "Name a file: inside.html")
    found = Path(path)
    if found.suffix.lower() not in (".html", ".json"):
        raise TextError(path, f"has the unknown ending '{found.suffix}'", "Use .html or .json")
    return found
