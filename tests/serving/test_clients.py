"""The field's own clients work unchanged against a running server: openai, sync and async, and Hugging Face's."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError, ValidationError
from inference import photos
from inference.test_load import plain, saved
from serving.running import RunningServer, running

import bertsmith
from bertsmith.inference.model import Model

MODELS = ("plain", "reviews", "ner", "squad", "photos")
pytestmark = pytest.mark.slow("starts a server")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    plain(folder / "plain")
    for name, kind in {"reviews": "class", "ner": "tag", "squad": "answer"}.items():
        saved(folder / name, kind)
    photos.model(folder / "photos")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with running(folder, *(str(folder / name) for name in MODELS)) as one:
        yield one


def test_openais_client_embeds(server: RunningServer, folder: Path) -> None:
    known = bertsmith.load(folder / "plain", "cpu").embed(["the cat", "a dog"])
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
        assert [model.id for model in client.models.list()] == [*MODELS]
        assert client.models.retrieve("ner").id == "ner"
        for coding in ("float", openai.omit):  # by default it asks for base64, and decodes it
            found = client.embeddings.create(model="plain", input=["the cat", "a dog"], encoding_format=coding)
            assert np.abs(np.array([one.embedding for one in found.data]) - known).max() < 1e-6
        assert len(client.embeddings.create(model="plain", input="x", dimensions=7).data[0].embedding) == 7
        with pytest.raises(openai.NotFoundError, match="there is no 'gpt-4' here"):
            client.embeddings.create(model="gpt-4", input="x")
        with pytest.raises(openai.UnprocessableEntityError, match="the vectors have 32"):
            client.embeddings.create(model="plain", input="x", dimensions=700)


def test_openais_async_client_embeds(server: RunningServer, folder: Path) -> None:
    texts = [f"the cat {'sees ' * number}" for number in range(30)]

    async def embed() -> list[list[float]]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
            found = await asyncio.gather(*(client.embeddings.create(model="plain", input=text) for text in texts))
            return [one.data[0].embedding for one in found]

    assert np.abs(np.array(asyncio.run(embed())) - bertsmith.load(folder / "plain", "cpu").embed(texts)).max() < 1e-6


def test_hugging_faces_client_does_its_tasks(
    server: RunningServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # it would not even ask this machine

    def client(name: str) -> InferenceClient:
        return InferenceClient(base_url=f"{server.url}/models/{name}")

    known = bertsmith.load(folder / "plain", "cpu")
    filled = client("plain").fill_mask("the [MASK] sees", top_k=2)
    assert [one.token_str for one in filled] == [one.word for one in known.fill("the [MASK] sees", top_k=2).blanks[0]]
    classes = client("reviews").text_classification("the cat")
    assert classes[0].label == bertsmith.load(folder / "reviews", "cpu").classify("the cat").label
    text = "the old cat sees the river"
    assert all(text[one.start : one.end] == one.word for one in client("ner").token_classification(text))
    answer = client("squad").question_answering(question="who sees ?", context=text)
    assert text[answer.start : answer.end] == answer.answer
    vectors = client("plain/pipeline/feature-extraction").feature_extraction(["the cat", "a dog"])
    assert np.abs(vectors - known.embed(["the cat", "a dog"])).max() < 1e-6
    assert client("plain").sentence_similarity("the cat", ["the cat", "a dog"])[0] == pytest.approx(1, abs=1e-6)
    image = photos.images(folder / "images") / "cat.png"
    expected = bertsmith.load(folder / "photos", "cpu").predict(image)
    images = client("photos").image_classification(image)
    assert [one.label for one in images] == list(expected.probabilities)
    assert images[0].score == pytest.approx(expected.probability, abs=1e-6)
    assert len(client("photos").image_classification(str(image), top_k=1)) == 1  # as JSON and not as the file itself
    with pytest.raises(HfHubHTTPError, match="422"):
        client("ner/pipeline/fill-mask").fill_mask("the [MASK]")


def test_hugging_faces_client_writes(
    writing_models: dict[str, Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    gpt, translator = writing_models.values()
    with running(tmp_path, gpt.path, translator.path) as server:
        writes = InferenceClient(base_url=f"{server.url}/models/translator")
        known = translator.translate("the cat")
        assert writes.translation("the cat").translation_text == known
        assert writes.summarization("the cat").summary_text == known
        assert writes.text_generation("the cat") == known
        continues = InferenceClient(base_url=f"{server.url}/models/gpt")
        greedy = gpt.generate("the cat", max_new_tokens=5, temperature=0)
        assert continues.text_generation("the cat", max_new_tokens=5, do_sample=False) == greedy
        with pytest.raises(ValidationError, match="stream: is not supported"):
            list(continues.text_generation("the cat", stream=True))
        with pytest.raises(ValidationError, match=r"parameters\.repetition_penalty: is not supported"):
            continues.text_generation("the cat", repetition_penalty=1.3)
