"""Projection of vectors to the plane: principal component analysis (PCA, Pearson 1901), t-SNE and UMAP.

PCA is linear and always there. t-SNE (van der Maaten and Hinton 2008) and UMAP (McInnes et al. 2018) keep neighbours
together and distort distances; they are drawn where scikit-learn and umap-learn are installed. Equal vectors and an
equal seed give equal maps.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from jaxtyping import Float, Float64

from bertsmith.errors import TextError

MAX_POINTS = 2_000
MIN_NEIGHBOUR_POINTS = 8  # with fewer, t-SNE and UMAP have no neighbourhoods to keep
PERPLEXITY, NEIGHBOURS = 30.0, 15  # the usual settings, with fewer neighbours for fewer points

Vectors = Float[np.ndarray, "N D"]
Plane = Float64[np.ndarray, "N 2"]


@dataclass(frozen=True)
class Point:
    """A point of a map: a word, a sentence, or a sentence with one word marked."""

    text: str
    label: str = ""
    mark: tuple[int, int] | None = None  # the characters of the word


@dataclass(frozen=True, repr=False)
class Map:
    """A map of words, sentences, or the occurrences of one word, by each model and each method."""

    what: str
    points: list[Point]
    coordinates: list[dict[str, Plane]]  # for each model: by method
    explained: list[tuple[float, float]]  # for each model: the share of variance of the two principal components

    @classmethod
    def of(cls, what: str, points: Sequence[Point], vectors: Sequence[Vectors], seed: int = 0) -> "Map":
        """The map of some points, from the vectors of every model."""
        if len(points) < 3:
            raise TextError(f"the map of {what}", f"has {len(points)} points", "Give a file with three or more")
        planes, explained = list[dict[str, Plane]](), list[tuple[float, float]]()
        for own in vectors:
            plane, shares = pca(own)
            planes.append({"PCA": plane})
            explained.append(shares)
            if len(points) >= MIN_NEIGHBOUR_POINTS:
                planes[-1] |= {name: METHODS[name](own, seed) for name in installed_methods()}
        return cls(what, list(points), planes, explained)

    @property
    def methods(self) -> list[str]:
        """The methods that there are coordinates of."""
        return list(self.coordinates[0]) if self.coordinates else []

    def figures(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {
            "what": self.what,
            "methods": self.methods,
            "points": [
                {"text": point.text, "mark": point.mark and list(point.mark), "label": point.label}
                for point in self.points
            ],
            "coordinates": {
                str(model): {name: plane.tolist() for name, plane in planes.items()}
                for model, planes in enumerate(self.coordinates)
            },
            "labels": sorted({point.label for point in self.points} - {""}),
            "explained": {str(model): list(shares) for model, shares in enumerate(self.explained)},
        }

    def __repr__(self) -> str:
        return f"Map({len(self.points)} {self.what}, {', '.join(self.methods)})"


def pca(vectors: Vectors) -> tuple[Plane, tuple[float, float]]:
    """The first two principal components by singular value decomposition, and their shares of the variance.

    The largest loading of each component is positive, so that a map is not mirrored from machine to machine.
    """
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    _, singular, components = np.linalg.svd(centred, full_matrices=False)
    components = (
        components[:2]
        * np.sign(components[np.arange(min(2, len(components))), np.abs(components[:2]).argmax(1)])[:, None]
    )
    plane = np.zeros((len(vectors), 2))
    plane[:, : len(components)] = centred @ components.T
    shares = np.append(singular**2 / max(float((singular**2).sum()), 1e-300), [0.0, 0.0])
    return plane, (float(shares[0]), float(shares[1]))


def tsne(vectors: Vectors, seed: int = 0) -> Plane:
    """t-SNE by scikit-learn, from the principal components."""
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    initial, _ = pca(vectors)
    initial *= 1e-4 / max(float(initial[:, 0].std()), 1e-12)  # as scikit-learn scales its own
    found = TSNE(2, perplexity=perplexity, init=initial.astype(np.float32), random_state=seed, n_jobs=1)
    return np.asarray(found.fit_transform(vectors.astype(np.float32)), np.float64)


def umap(vectors: Vectors, seed: int = 0) -> Plane:
    """UMAP by umap-learn, on one thread, so that the seed decides."""
    with warnings.catch_warnings():  # of its own compiler, and of distances on small data
        warnings.simplefilter("ignore")
        from umap import UMAP

        found = UMAP(n_neighbors=min(NEIGHBOURS, len(vectors) - 1), random_state=seed, n_jobs=1)
        if len(vectors) < 16:  # too few for a spectral start
            found.init = "random"
        return np.asarray(found.fit_transform(vectors.astype(np.float32)), np.float64)


METHODS = {"t-SNE": tsne, "UMAP": umap}
PACKAGES = {"t-SNE": "sklearn", "UMAP": "umap"}


def installed_methods() -> list[str]:
    """The methods besides PCA whose packages are installed."""
    return [name for name, package in PACKAGES.items() if find_spec(package)]
