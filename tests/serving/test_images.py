"""Models of images over HTTP: every form of an upload gives what the model gives, beside models of text."""

import base64
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference import photos
from inference.test_load import saved
from PIL import Image
from serving.local import LocalServer, local

from bertsmith.inference.image_model import ImageModel
from bertsmith.inference.load import load
from bertsmith.serving import uploads
from bertsmith.serving.request_error import RequestError


def png(seed: int = 0) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(photos.pixels(20, 28, seed)).save(stream, "PNG")
    return stream.getvalue()


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def form(*parts: tuple[str, bytes], boundary: str = "x-y", **fields: str) -> bytes:
    lines = [(f'name="{name}"', value.encode()) for name, value in fields.items()]
    lines += [(f'name="{name}"; filename="a.png"\r\nContent-Type: image/png', content) for name, content in parts]
    edge = f"--{boundary}".encode()
    made = [edge + f"\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + value for head, value in lines]
    return b"\r\n".join([*made, edge + b"--\r\n"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ImageModel:
    return load(photos.model(tmp_path_factory.mktemp("models") / "photos"), "cpu")


@pytest.fixture(scope="module")
def server(model: ImageModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    reviews = load(saved(tmp_path_factory.mktemp("models") / "reviews", "class"), "cpu")
    with local({"photos": model, "reviews": reviews}) as running:
        yield running


def test_every_form_of_an_upload_gives_the_prediction(server: LocalServer, model: ImageModel) -> None:
    expected = model.predict(png())
    path, content_type = "/models/photos/predict", {"content_type": "multipart/form-data; boundary=x-y"}
    found = [
        server.post(path, png(), content_type="image/png"),
        server.post(path, png(), content_type="application/octet-stream"),
        server.post(path, form(("image", png())), **content_type),
        server.post(path, form(("image", png()), boundary="q q"), content_type='multipart/form-data; boundary="q q"'),
        server.post("/predict", form(("image", png()), model="photos"), **content_type),
        server.post("/predict", {"model": "photos", "inputs": base64_of(png())}),
        server.post(path, {"inputs": f"data:image/png;base64,{base64_of(png())}"}),
    ]
    for one in found:
        assert one["label"] == expected.label
        assert one["probabilities"] == pytest.approx(expected.probabilities, abs=1e-6)
        assert "image" not in one
    assert server.post("/predict", png(), content_type="image/png") == found[0]  # only one model takes images
    assert len(server.post(path, form(("image", png()), top_k="2"), **content_type)["probabilities"]) == 2


def test_several_images_are_a_list_in_order(server: LocalServer, model: ImageModel) -> None:
    body = form(("a", png()), ("b", png(1)))
    found = server.post("/models/photos/predict", body, content_type="multipart/form-data; boundary=x-y")
    assert [one["label"] for one in found] == [one.label for one in model.predict([png(), png(1)])]
    both = {"model": "photos", "inputs": [base64_of(png()), base64_of(png(1))], "top_k": 1}
    assert [one["probability"] for one in server.post("/predict", both)] == pytest.approx(
        [one["probability"] for one in found], abs=1e-6
    )


def test_vectors_are_those_of_embed(server: LocalServer, model: ImageModel) -> None:
    [vector] = server.post("/embed", png(), content_type="image/png")
    assert np.allclose(vector, model.embed(png()), atol=1e-5)
    body = {"model": "photos", "inputs": base64_of(png()), "normalize": False, "dimensions": 5}
    [vector] = server.post("/embed", body)
    assert np.allclose(vector, model.embed(png(), normalise=False)[:5], atol=1e-5)


def test_the_endpoint_of_hugging_face_classifies(server: LocalServer, model: ImageModel) -> None:
    expected = model.predict(png())
    for found in (
        server.post("/models/photos", png(), content_type="image/png"),
        server.post("/models/photos/pipeline/image-classification", png(), content_type="image/png"),
        server.post("/models/photos", {"inputs": base64_of(png()), "parameters": {"top_k": 3}}),
    ):
        assert [one["label"] for one in found] == list(expected.probabilities)
        assert found[0]["score"] == pytest.approx(expected.probability, abs=1e-6)


def test_a_page_is_made_and_its_script_is_in_the_policy(server: LocalServer) -> None:
    reply = server.ask("POST", "/models/photos/inspect", png(), content_type="image/png")
    assert reply.status == 200
    page = reply.content.decode()
    assert page.startswith("<!doctype html>")
    from bertsmith.serving.page import SCRIPTS, digest

    policy = server.ask("GET", "/").headers["content-security-policy"]
    assert all(digest(script) in policy for script in SCRIPTS.findall(page))


def test_models_say_that_they_take_images(server: LocalServer) -> None:
    listed = {one["id"]: one for one in server.ask("GET", "/v1/models").json["data"]}
    assert [listed[name]["images"] for name in ("photos", "reviews")] == [True, False]
    assert listed["photos"]["labels"] == ["cat", "dog", "bird"]
    paths = server.ask("GET", "/openapi.json").json["paths"]
    assert "image/*" in paths["/predict"]["post"]["requestBody"]["content"]
    assert "image/*" not in paths["/fill"]["post"]["requestBody"]["content"]


def test_a_server_of_images_alone_says_that_it_reads_no_texts(model: ImageModel) -> None:
    with local({"photos": model}) as server:
        line = "model: none here can read texts. photos answers /predict, /embed, /inspect for images."
        assert server.refusal("/v1/embeddings", {"input": "x"}, 422) == line


def test_a_convolutional_network_is_served_without_inspection(tmp_path: Path) -> None:
    loaded = load(photos.convnet(tmp_path), "cpu")
    with local({"convnet": loaded}) as server:
        found = server.post("/predict", png(), content_type="image/png")
        assert found["probabilities"] == pytest.approx(loaded.predict(png()).probabilities, abs=1e-6)
        [vector] = server.post("/embed", png(), content_type="image/png")
        assert vector == pytest.approx(loaded.embed(png()).tolist(), abs=1e-6)
        reply = server.ask("POST", "/models/convnet/inspect", png(), content_type="image/png")
        assert reply.json["error"].startswith("model convnet: cannot inspect. It answers /predict, /embed for images")


@pytest.mark.parametrize(
    ("path", "body", "kind", "status", "line"),
    [
        ("/models/photos/predict", b"none", "image/png", 422, "image 1: is no image of a known format"),
        ("/models/photos/predict", b"", "image/png", 400, "body: is empty. Send an image."),
        ("/models/photos/predict", {"inputs": "%%"}, "", 422, "inputs 1: is no image in base64."),
        ("/models/photos/predict", {"inputs": {"a": 1}}, "", 422, "inputs 1: is no image in base64."),
        ("/models/photos/predict", {"inputs": []}, "", 422, "inputs: is an empty list."),
        ("/models/photos/predict", {"inputs": ["YQ=="] * 3000}, "", 413, "inputs: 3,000 are more than 2,048."),
        ("/models/photos/fill", {"inputs": "x"}, "", 422, "model photos: reads images and no texts. It answers /pre"),
        ("/models/photos/tokenize", {"inputs": "x"}, "", 422, "model photos: reads images and no texts. It answ"),
        ("/v1/embeddings", {"model": "photos", "input": "x"}, "", 422, "model photos: reads images and no texts."),
        ("/models/reviews/predict", png(), "image/png", 422, "model reviews: reads texts and no images. It"),
        ("/models/reviews/predict", {"inputs": "x", "top_k": 2}, "", 422, "top_k: is for models of images."),
        ("/fill", png(), "image/png", 415, "body: is no JSON. This route takes no images"),
        ("/predict", b"--x--", "multipart/form-data", 400, "body: is a form without a boundary."),
        ("/predict", b"", "multipart/form-data; boundary=x", 400, "body: is no form that is complete."),
        ("/predict", b"hello", "multipart/form-data; boundary=x", 400, "body: is no form that is complete."),
        ("/predict", b"--x", "multipart/form-data; boundary=x", 400, "body: is no form that is complete."),
        ("/predict", form(), "multipart/form-data; boundary=x-y", 400, "body: is no form that is complete."),
        ("/predict", form(a="b"), "multipart/form-data; boundary=x-y", 422, "body: is a form without a file."),
        ("/models/photos/embed", {"inputs": base64_of(png()), "dimensions": 99}, "", 422, "dimensions: is 99, and"),
        ("/models/photos/pipeline/fill-mask", {"inputs": "x"}, "", 422, "model photos: cannot fill."),
    ],
)
def test_a_mistake_is_a_line(server: LocalServer, path: str, body: Any, kind: str, status: int, line: str) -> None:
    reply = server.ask("POST", path, body, **({"content_type": kind} if kind else {}))
    assert reply.status == status, reply.content
    error = reply.json["error"]
    assert (error["message"] if isinstance(error, dict) else error).startswith(line)


def test_a_bad_image_does_not_touch_the_others(server: LocalServer) -> None:
    """Requests that wait together are one batch; the bad one is refused alone."""
    import asyncio

    async def ask() -> list[Any]:
        bodies = [png(), b"none", png(1)]
        return await asyncio.gather(
            *(server.request("POST", "/models/photos/predict", one, content_type="image/png") for one in bodies)
        )

    assert [reply.status for reply in server.loop.run_until_complete(ask())] == [200, 422, 200]


def test_a_form_keeps_the_bytes_of_its_files() -> None:
    content = b"\r\n--x\r\n\r\nboth\n\r" + bytes(range(256))
    found = uploads.read(
        "multipart/form-data; boundary=abc", form(("f", content), boundary="abc", top_k="3", model="7b")
    )
    assert found is not None
    assert base64.b64decode(found["inputs"]) == content
    assert (found["top_k"], found["model"]) == (3, "7b")
    assert uploads.read("application/json", b"{}") is None
    with pytest.raises(RequestError, match="is no form that is complete"):
        uploads.read("multipart/form-data; boundary=abc", form(("f", content), boundary="abc")[:-6])


def test_whatever_is_uploaded_is_read_or_refused() -> None:
    """Forms with bytes changed, cut off and repeated: fields and base64, or a refusal in the 400s."""
    dice = random.Random(0)
    whole = form(("image", png()[:200]), ("other", b"--x-y"), top_k="3")
    read, statuses = 0, set[int]()
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(dice.randrange(4)):
            at = dice.randrange(len(content))
            content[at : at + dice.choice((0, 1, 30))] = dice.choice((b"", b"\r\n", b"--x-y", b'"', b"\0", whole[:90]))
        kind = dice.choice(("multipart/form-data; boundary=x-y", 'multipart/form-data; boundary="x-y"', "image/png"))
        try:
            found = uploads.read(kind, bytes(content))
        except RequestError as refusal:
            statuses.add(refusal.status)
            continue
        assert found is not None
        read += 1
        for one in found["inputs"] if isinstance(found["inputs"], list) else [found["inputs"]]:
            base64.b64decode(one, validate=True)
    assert 100 < read < 400
    assert statuses <= {400, 422}
