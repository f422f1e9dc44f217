"""The model of images that users call: classes, embeddings and inspections of images, by ViT and DeiT.

Every call takes one image and returns one result, or takes a list or a folder and returns a list.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.errors import FolderError, RecipeError
from bertsmith.inference.image_features import map_images, pooled
from bertsmith.inference.image_inputs import NamedImage, as_images
from bertsmith.inference.inputs import as_integers, short_repr
from bertsmith.inference.loaded_image_model import LoadedImageModel, check_choices
from bertsmith.inference.prediction import Prediction
from bertsmith.models.convnet import ConvNet
from bertsmith.models.patches import Patches

THRESHOLD = 0.5  # probability from which a multi-label model predicts a label


class ImageModel(LoadedImageModel):
    """A network of images, as `bertsmith.load` returns it for the folder of a ViT or a DeiT.

    >>> photos = bertsmith.load("runs/photos")
    >>> photos.predict("photos/cat.png").label in photos.labels
    True
    >>> photos.embed("photos").shape
    (2, 16)
    """

    def predict(self, images: Any, *, top_k: int = 5, size: str = "model", precision: str = "float32") -> Any:
        """The most probable class of an image or of many, its probability, and those of the `top_k` best.

        A multi-label model gives each label a probability of its own, and as `labels` those of at least one half.

        An image is a path, bytes, one of Pillow, a numpy array or a tensor; a folder stands for the images in it. With
        `size="own"` images keep their size and shape; by default they get the size that the model was trained on.

        >>> photos = bertsmith.load("runs/photos")
        >>> found = photos.predict("photos/cat.png", top_k=2)
        >>> found.label in photos.labels, 0 < found.probability <= 1, len(found.probabilities)
        (True, True, 2)
        >>> [one.image for one in photos.predict("photos", size="own")]
        ['photos/cat.png', 'photos/dog.png']
        """
        given, one = as_images(images)
        found = list(self.predict_stream(given, top_k=top_k, size=size, precision=precision))
        return found[0] if one else found

    def predict_stream(
        self,
        images: Iterable[NamedImage],
        *,
        top_k: int = 5,
        size: str = "model",
        precision: str = "float32",
        on_error: Callable[[Exception], Any] | None = None,
    ) -> Iterator[Prediction]:
        """`predict` for any number of images with names, one after the other as they are known.

        >>> from bertsmith.inference.image_inputs import as_images
        >>> stream = bertsmith.load("runs/photos").predict_stream(as_images("photos")[0])
        >>> [sorted(one) for one in stream][0]
        ['image', 'label', 'probabilities', 'probability']
        """
        if type(top_k) is not int or top_k < 1:
            raise RecipeError("top_k", f"is {short_repr(top_k)}", "Give 1 or more")
        count = min(top_k, len(self.labels))
        names = iter(images := list(images))
        for best in self._mapped(images, lambda patches: self._best(patches, count), size, precision, on_error):
            name = next(names).name
            yield Prediction({"image": name, **best})

    def probabilities(self, images: Any, *, size: str = "model") -> NDArray[np.float32]:
        """The probability of every class (column) for every image (row).

        >>> bertsmith.load("runs/photos").probabilities("photos").sum(1).round(3).tolist()
        [1.0, 1.0]
        """
        rows = list(self._mapped(as_images(images)[0], lambda patches: list(self._shares(patches)), size, "float32"))
        return np.stack([row.cpu().numpy() for row in rows]) if rows else np.zeros((0, len(self.labels)), np.float32)

    def embed(
        self,
        images: Any,
        *,
        pooling: str = "first",
        layers: Any = (-1,),
        layer_join: str = "sum",
        normalise: bool = True,
        size: str = "model",
        precision: str = "auto",
    ) -> NDArray[np.float32]:
        """The vector of an image, or a row for each of many: of the class token, or the mean of all patches.

        Layer 0 of `layers` is the patch embedding, -1 the last; `normalise` makes the length of a vector 1, so that
        inner products are cosines. Images may be given as to `predict`.

        >>> photos = bertsmith.load("runs/photos")
        >>> photos.embed("photos/cat.png", pooling="mean", layers=[-1, -2], layer_join="concatenate").shape
        (32,)
        """
        given, one = as_images(images)
        options: dict[str, Any] = {"layers": layers, "layer_join": layer_join, "normalise": normalise}
        rows = list(self.embed_stream(given, pooling=pooling, size=size, precision=precision, **options))
        width = self.vector_width * (len(as_integers(layers, "layers")) if layer_join == "concatenate" else 1)
        return rows[0] if one else np.stack(rows) if rows else np.zeros((0, width), np.float32)

    def embed_stream(
        self,
        images: Iterable[NamedImage],
        *,
        pooling: str = "first",
        layers: Any = (-1,),
        layer_join: str = "sum",
        normalise: bool = True,
        size: str = "model",
        precision: str = "auto",
        on_error: Callable[[Exception], Any] | None = None,
    ) -> Iterator[Any]:
        """`embed` for any number of images with names, one after the other; `on_error` of those that cannot be read.

        >>> from bertsmith.inference.image_inputs import as_images
        >>> [vector.shape for vector in bertsmith.load("runs/photos").embed_stream(as_images("photos")[0])]
        [(16,), (16,)]
        """
        check_choices(pooling=pooling, layer_join=layer_join)
        if isinstance(self.trunk, ConvNet):
            return self._vectors_of_convnet(images, (pooling, layers), normalise, size, precision, on_error)
        trunk, config = self.trunk, self.trunk.config
        chosen, count = as_integers(layers, "layers"), config.layers
        if not chosen or (wrong := [layer for layer in chosen if not -count - 1 <= layer <= count]):
            fact = f"there is no {wrong[0]}" if chosen else "none is chosen"
            raise RecipeError("layers", fact, f"They go from 0, the patch embedding, to {count}")

        def vectors(patches: Patches) -> list[Tensor]:
            states = trunk.hidden_states(patches)
            parts = [pooled(states[layer], patches, pooling, config.special_tokens) for layer in chosen]
            joined = torch.cat(parts, 1) if layer_join == "concatenate" else torch.stack(parts).sum(0)
            return list(torch.nn.functional.normalize(joined) if normalise else joined)

        rows = self._mapped(images, vectors, size, precision, on_error)
        return (row.cpu().numpy() if isinstance(row, Tensor) else row for row in rows)

    def _vectors_of_convnet(
        self, images: Iterable[NamedImage], chosen: Any, normalise: bool, size: str, precision: str, on_error: Any
    ) -> Iterator[Any]:
        """The one vector that a convolutional network has for each image."""
        if chosen[0] != "first" or tuple(as_integers(chosen[1], "layers")) != (-1,):
            fact = "cannot be chosen: a convolutional network has one vector for each image"
            raise RecipeError("layers and pooling", fact, "Leave them out")

        def vectors(batch: Tensor) -> list[Tensor]:
            found: Tensor = self.trunk(batch).float()
            return list(torch.nn.functional.normalize(found) if normalise else found)

        rows = self._mapped(images, vectors, size, precision, on_error)
        return (row.cpu().numpy() if isinstance(row, Tensor) else row for row in rows)

    def _mapped(
        self,
        images: Iterable[NamedImage],
        compute: Any,
        size: str,
        precision: str,
        on_error: Callable[[Exception], Any] | None = None,
    ) -> Iterator[Any]:
        check_choices(size=size, precision=precision)
        options: dict[str, Any] = {"size": size, "precision": precision, "on_error": on_error, "device": self.device}
        return map_images(images, compute, self.config, self.processor, **options)

    def _shares(self, patches: Patches | Tensor) -> Tensor:
        """The probability of every class of each image in a batch; of several labels each by itself."""
        if self.network is None:
            fact = "was not fine-tuned to predict anything"
            raise FolderError(self.path, fact, "Take its vectors: embed; or fine-tune it on labelled images")
        if self.problem == "regression":
            raise FolderError(self.path, "predicts numbers, which is not supported for images", "Use embed")
        logits = self.network(patches).mean.float()
        shares: Tensor = logits.sigmoid() if self.problem == "multi_label" else logits.softmax(-1)
        return shares

    def _best(self, patches: Patches | Tensor, count: int) -> list[dict[str, Any]]:
        return [self._named(shares, count) for shares in self._shares(patches).cpu()]

    def _named(self, shares: Tensor, count: int) -> dict[str, Any]:
        best = shares.topk(count)
        probabilities = {self.labels[at]: share for share, at in zip(*map(Tensor.tolist, best), strict=True)}
        label, probability = next(iter(probabilities.items()))
        found = {"label": label, "probability": probability, "probabilities": probabilities}
        if self.problem == "multi_label":
            found["labels"] = [self.labels[at] for at in torch.nonzero(shares >= THRESHOLD).flatten().tolist()]
        return found
