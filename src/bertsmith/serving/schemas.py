"""The bodies of requests: which fields they have, of which types."""

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from bertsmith.serving.request_error import RequestError

TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Natural = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=1, le=100)]  # of results or samples
LengthPenalty = Annotated[float, Meta(ge=-10, le=10)]  # an exponent: beyond them, scores are no numbers any more
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e3  # logits are divided by it
Texts = Annotated[str | list[str], Meta(description="A text, or a list of texts.")]
Pair = Annotated[list[str], Meta(min_length=2, max_length=2)]


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What every body may have: the model, which can be left out where only one can do it."""

    model: str | None = None


class EmbeddingsBody(Body, forbid_unknown_fields=False):
    """`POST /v1/embeddings`, as OpenAI defines it; fields that have no meaning here, such as `user`, are ignored."""

    input: Annotated[
        str | list[str | TokenId | list[TokenId]], Meta(description="A text, token ids, or a list of one of them.")
    ]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Positive | None = None


class EmbedBody(Body):
    """`POST /embed`, as text-embeddings-inference defines it: a list of vectors, also for a single text."""

    inputs: Texts
    normalize: bool | None = None  # by default as the model's folder says
    dimensions: Positive | None = None
    truncate: bool | None = None  # false: a text longer than the model reads is refused instead of cut


class Sentences(msgspec.Struct, forbid_unknown_fields=True):
    """A sentence, and those that it is compared with."""

    source_sentence: str
    sentences: Annotated[list[str], Meta(min_length=1)]


class SimilarityBody(Body):
    """`POST /similarity`: the cosine of one sentence with each of the others."""

    inputs: Sentences


class RerankBody(Body):
    """`POST /rerank`: texts in the order of their relevance for a query."""

    query: str
    texts: Annotated[list[str], Meta(min_length=1)]
    positive: str | None = None  # the class that means relevant, of a cross-encoder whose names do not say it
    return_text: bool = False
    top_n: Positive | None = None


class PredictBody(Body):
    """`POST /predict`: the prediction of a fine-tuned model for a text, a pair, a record, or a list of these."""

    inputs: Annotated[
        str | dict[str, Any] | list[str | Pair | dict[str, Any]],
        Meta(
            description="A text, or a record of the columns of the training data, or a list; a pair is a list of two; "
            "of a model of images, an image in base64, or a list"
        ),
    ]
    top_k: Count | None = None  # classes of an image, 5 by default


class TagBody(Body):
    """`POST /tag`: a tag for each word of a text, which may be split into words already."""

    inputs: Annotated[str | list[str | list[str]], Meta(description="A text, or a list of texts or lists of words.")]


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """A question, and the text that its answer is in."""

    question: str
    context: str


class AnswerBody(Body):
    """`POST /answer`: the span of a context that answers a question."""

    inputs: Question | list[Question]


class FillBody(Body):
    """`POST /fill`: the likeliest words for each mask of a text."""

    inputs: Texts
    top_k: Annotated[int, Meta(ge=1, le=1000)] = 5


class ScoreBody(Body):
    """`POST /score`: the log-likelihood of a text; of a masked model, the pseudo-log-likelihood."""

    inputs: Texts
    pll_form: Literal["within_word", "original"] = "within_word"


class GenerateBody(Body):
    """`POST /generate`: continuations of a prompt."""

    inputs: Texts
    max_new_tokens: Annotated[int, Meta(ge=1, le=4096)] = 40
    min_new_tokens: Natural = 0
    temperature: Annotated[
        float, Meta(ge=0, le=MAX_TEMPERATURE, description="0 for the likeliest token each time; else at least 0.001.")
    ] = 0.8
    top_k: Natural = 50
    top_p: Annotated[float, Meta(ge=1e-6, le=1)] = 0.95  # nearer to 0 it is 0 in float32, and leaves no token
    num_beams: Annotated[int, Meta(ge=1, le=64)] = 1
    length_penalty: LengthPenalty = 1.0
    samples: Count = 1
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    stop: list[str] = []

    def __post_init__(self) -> None:
        if 0 < self.temperature < MIN_TEMPERATURE:
            raise ValueError(f"Expected `temperature` 0, or at least {MIN_TEMPERATURE}")


class TranslateBody(Body):
    """`POST /translate`: the translation of a text, or the result of another text-to-text task."""

    inputs: Texts
    num_beams: Annotated[int, Meta(ge=1, le=64)] = 5
    length_penalty: LengthPenalty = 1.0


class TokenizeBody(Body):
    """`POST /tokenize`: the tokens of each text, with their place in it."""

    inputs: Texts
    add_special_tokens: bool = True


class InspectBody(Body):
    """`POST /inspect`: the page of a text, or of a pair of texts."""

    inputs: Annotated[str | Pair, Meta(description="A text, or a pair of texts as a list.")]
    attributions: bool = False  # which words decided: integrated gradients, which take longest


class InferenceBody(Body, forbid_unknown_fields=False):
    """`POST /` and `POST /models/NAME`: the form of Hugging Face's inference endpoints."""

    inputs: Any
    parameters: dict[str, Any] = {}
    stream: bool | None = None  # true is refused: an answer comes as a whole


B = TypeVar("B")


def decode(content: bytes, kind: type[B]) -> B:
    """A body of a kind. Whatever is wrong with it is a refusal."""
    if not content.strip():
        raise RequestError(400, "body", "is empty", "Send a JSON object")
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise RequestError(422, "body", _one_line(error)) from None
    except RecursionError:
        raise RequestError(400, "body", "is nested too deeply", "Send plain JSON") from None
    except UnicodeDecodeError:
        raise RequestError(400, "body", "is not UTF-8", "Send JSON in UTF-8") from None
    except msgspec.DecodeError as error:
        raise RequestError(400, "body", f"is not JSON ({_one_line(error)})") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
