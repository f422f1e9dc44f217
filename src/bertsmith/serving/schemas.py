"""The bodies of requests: which fields they have, of which types."""

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from bertsmith.serving.request_error import RequestError

TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Texts = str | list[str]


class Body(msgspec.Struct, kw_only=True):
    """What every body may have: the model, which can be left out where only one can do it."""

    model: str | None = None


class EmbeddingsBody(Body):
    """`POST /v1/embeddings`, as OpenAI defines it; fields that have no meaning here, such as `user`, are ignored."""

    input: str | list[str | TokenId | list[TokenId]]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Annotated[int, Meta(ge=1)] | None = None


class EmbedBody(Body, forbid_unknown_fields=True):
    """`POST /embed`: a text gives a vector, a list of texts a list of vectors."""

    inputs: Texts
    normalize: bool | None = None  # by default as the model's folder says
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    truncate: bool | None = None  # false: a text longer than the model reads is refused instead of cut


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
