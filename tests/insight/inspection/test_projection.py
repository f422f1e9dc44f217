"""Maps: principal components against numpy's covariance, and what holds for every method."""

import json

import numpy as np
import pytest

from bertsmith.errors import TextError
from bertsmith.insight.inspection import projection
from bertsmith.insight.inspection.projection import Map, Point, pca, tsne


def clusters(count: int = 40) -> np.ndarray:
    """Two groups of points, far apart in one direction."""
    drawn = np.random.default_rng(0).normal(size=(count, 8)).astype(np.float32)
    drawn[: count // 2, 3] += 20
    return drawn


def separated(plane: np.ndarray) -> bool:
    """Whether the nearest point of every point is of its own group."""
    distances = np.linalg.norm(plane[:, None] - plane[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    groups = np.arange(len(plane)) < len(plane) // 2
    return bool((groups[distances.argmin(1)] == groups).all())


def test_principal_components_are_the_eigenvectors_of_the_covariance() -> None:
    vectors = clusters()
    plane, shares = pca(vectors)
    values, axes = np.linalg.eigh(np.cov(vectors.T.astype(np.float64)))
    expected = (vectors - vectors.mean(0)) @ axes[:, [-1, -2]]
    for column in range(2):
        sign = np.sign(plane[:, column] @ expected[:, column])
        assert sign * plane[:, column] == pytest.approx(expected[:, column], abs=1e-4)
    assert shares == pytest.approx((values[-1] / values.sum(), values[-2] / values.sum()), abs=1e-6)
    assert separated(plane)


def test_a_map_is_not_mirrored_by_the_order_of_its_points() -> None:
    vectors = clusters()
    plane, _ = pca(vectors)
    assert pca(vectors[::-1])[0][::-1] == pytest.approx(plane, abs=1e-4)


def test_points_on_a_line_and_equal_points_have_a_map() -> None:
    line, shares = pca(np.arange(5, dtype=np.float32)[:, None])
    assert line[:, 1].tolist() == [0] * 5
    assert shares == pytest.approx((1, 0))
    same, shares = pca(np.ones((4, 3), np.float32))
    assert same.tolist() == [[0, 0]] * 4
    assert shares == (0, 0)


@pytest.mark.slow("scikit-learn is imported and fits a map")
def test_tsne_keeps_groups_apart_and_is_the_same_each_time() -> None:
    pytest.importorskip("sklearn")
    plane = tsne(clusters())
    assert separated(plane)
    assert np.array_equal(plane, tsne(clusters()))


@pytest.mark.slow("umap-learn is compiled when it is imported")
def test_umap_keeps_groups_apart_and_is_the_same_each_time() -> None:
    pytest.importorskip("umap", reason="umap-learn is not installed")
    plane = projection.umap(clusters())
    assert separated(plane)
    assert np.array_equal(plane, projection.umap(clusters()))


def test_a_map_has_every_model_and_every_method_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "installed_methods", lambda: ["t-SNE"])
    monkeypatch.setitem(projection.METHODS, "t-SNE", lambda vectors, seed: np.zeros((len(vectors), 2)) + seed)
    points = [Point(f"text {number}", "good" if number % 2 else "bad", (0, 4)) for number in range(40)]
    made = Map.of("sentences", points, [clusters(), clusters()[:, :3]], seed=7)
    figures = json.loads(json.dumps(made.figures()))
    assert figures["methods"] == ["PCA", "t-SNE"]
    assert figures["labels"] == ["bad", "good"]
    assert list(figures["coordinates"]) == list(figures["explained"]) == ["0", "1"]
    assert figures["coordinates"]["1"]["t-SNE"][0] == [7, 7]
    assert len(figures["coordinates"]["0"]["PCA"]) == 40
    assert figures["points"][1] == {"text": "text 1", "mark": [0, 4], "label": "good"}
    assert repr(made) == "Map(40 sentences, PCA, t-SNE)"


def test_a_few_points_have_principal_components_alone_and_two_have_no_map() -> None:
    points = [Point("a"), Point("b"), Point("c")]
    assert Map.of("words", points, [clusters()[:3]]).methods == ["PCA"]
    with pytest.raises(TextError, match=r"the map of words: has 2 points. Give a file with three or more."):
        Map.of("words", points[:2], [clusters()[:2]])


def test_without_the_extra_there_are_principal_components(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "find_spec", lambda _: None)
    assert Map.of("words", [Point("a")] * 10, [clusters(10)]).methods == ["PCA"]
