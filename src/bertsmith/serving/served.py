"""The models as a front sees them: their tokenizers and abilities, and the connection to the process that runs them."""

import copy
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.serving.counters import Counters
from bertsmith.serving.model_client import ModelClient, unavailable
from bertsmith.serving.request_error import RequestError
from bertsmith.serving.settings import Limits
from bertsmith.serving.wire import Hello, Result, ServedModel
from bertsmith.text.tokenizer import Tokenizer

QUEUE_TOKENS = {"cpu": 131_072, "cuda": 2_097_152}  # that wait or are being computed, by default
MAX_QUEUES = 4  # full queues of work that one request may be; the queue lets any request in while it is empty
ROUTES_OF = {  # the routes for each verb, by which a refusal names what a model can do
    "embed": "/v1/embeddings, /embed, /similarity",
    "rerank": "/rerank",
    "predict": "/predict",
    "fill": "/fill",
    "score": "/score",
    "generate": "/generate",
    "translate": "/translate",
    "inspect": "/inspect",
}


class FrontModel:
    """A model, with the tokenizer that this front has loaded, and the connection to the process that has its weights.

    Token ids go to the process whose tokenizer they are of, also if there is another one when they are sent.
    """

    def __init__(self, served: ServedModel, client: ModelClient) -> None:
        self.served, self.client = served, client
        self.mask, self.special_tokens = "", 0
        if served.images:  # which have no tokenizer
            return
        tokenizer = Tokenizer.load(served.folder)
        self.tokenizer = tokenizer.for_tasks() if served.for_tasks else tokenizer
        before, after = self.tokenizer.template.before, self.tokenizer.template.after
        self.mask = self.tokenizer.piece(self.tokenizer.mask_id) if "fill" in served.verbs else ""
        self.special_tokens = bool(before) + bool(after)  # that an embedding reads around a text

    def __str__(self) -> str:
        return self.served.name

    def with_client(self, client: ModelClient) -> "FrontModel":
        """The same by another connection."""
        other = copy.copy(self)
        other.client = client
        return other

    def abilities(self) -> str:
        """The routes that this model answers, in words."""
        if self.served.images:
            return f"answers {', '.join(f'/{verb}' for verb in self.served.verbs)} for images"
        routes = [ROUTES_OF[verb] for verb in self.served.verbs]
        routes += {"tag": ["/tag"], "answer": ["/answer"]}.get(self.served.task, [])
        return f"answers {', '.join([*routes, '/tokenize'])}"

    def read_ids(self, rows: Sequence[Sequence[int]]) -> list[NDArray[np.int32]]:
        """The tokens of each text that its embedding reads, without special tokens."""
        most = self.served.embedding_length - self.special_tokens
        return [np.asarray(row[:most], np.int32) for row in rows]


class Served:
    """All models of a server, and the connection to their process; replaced as a whole when models are reloaded."""

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self.limits, self.counters = limits, counters
        self.client: ModelClient | None = None
        self.models: dict[str, FrontModel] = {}
        self.generation = 0
        self.device = "cpu"

    @property
    def ready(self) -> bool:
        return self.client is not None and not self.client.lost.is_set()

    def use(self, client: ModelClient, hello: Hello, models: dict[str, FrontModel], generation: int) -> None:
        """Send requests to another model process from now on."""
        self.client, self.models, self.generation, self.device = client, models, generation, hello.device

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keep the connection that there is now open for a request, while models may be loaded anew."""
        client = self.client
        if client is None:
            yield
            return
        client.users += 1
        try:
            yield
        finally:
            client.users -= 1

    def find(self, name: str | None, verb: str = "", task: str = "", images: Collection[bool] = (False,)) -> FrontModel:
        """The model with a name, or the only one that can do a verb; else a refusal that says what there is.

        `images`: whether its inputs may be images, or texts, or either.
        """
        if not self.models:
            raise unavailable()
        if name:
            found = self.models.get(name)
            if found is None:
                raise RequestError(404, "model", f"there is no '{name[:80]}' here", f"Served: {', '.join(self.models)}")
            if found.served.images not in images:
                fact = "reads images and no texts" if found.served.images else "reads texts and no images"
                raise RequestError(422, f"model {found}", fact, f"It {found.abilities()}")
            if not can(found, verb, task, images):
                raise RequestError(
                    422, f"model {found}", f"cannot {task or verb or 'do this'}", f"It {found.abilities()}"
                )
            return found
        able = [model for model in self.models.values() if can(model, verb, task, images)]
        if len(able) == 1:
            return able[0]
        if able:
            raise RequestError(422, "model", "is missing", f"Give one of: {', '.join(map(str, able))}")
        if not any(model.served.images in images for model in self.models.values()):
            task = "read texts" if False in images else "read images"
        every = "; ".join(f"{model} {model.abilities()}" for model in self.models.values())
        raise RequestError(422, "model", f"none here can {task or verb}", every)

    def check_room(self, work: int = 0) -> None:
        """Backpressure: refuse what the queue has no room for; before a request is read, its tokens are not known."""
        if self.is_full(work):
            raise overloaded()

    def is_full(self, work: int = 0) -> bool:
        """Whether the queue of the whole server has no room; an empty one has room for any request."""
        requests, tokens = self.counters.total("pending_requests"), self.counters.total("pending_tokens")
        return bool(requests) and (requests >= self.limits.queue_requests or tokens + work > self.room)

    @property
    def room(self) -> int:
        """The tokens of a full queue."""
        return self.limits.queue_tokens or QUEUE_TOKENS[self.device.partition(":")[0]]

    def check_tokens(self, tokens: int) -> None:
        """Refuse a request that has too many tokens."""
        if tokens > self.limits.request_tokens:
            fact = f"{tokens:,} tokens are more than the {self.limits.request_tokens:,} that a request may have"
            raise RequestError(413, "inputs", fact, "Send fewer texts at a time")

    def check_work(self, work: int) -> None:
        """Refuse a request that would hold the server for itself, even while nothing else waits."""
        if work > (most := MAX_QUEUES * self.room):
            fact = f"would take {work:,} tokens through the network, and a request may take {most:,}"
            raise RequestError(
                413, "inputs", fact, "Send fewer texts, or ask for fewer new tokens, samples, beams or words"
            )

    async def run(
        self, model: FrontModel, verb: str, inputs: list[Any], tokens: int, *, work: int | None = None, **options: Any
    ) -> Result:
        """Run inputs, if the queue has room for them: for their tokens, each as often as the network reads it."""
        self.check_tokens(tokens)
        work = tokens if work is None else work
        self.check_work(work)
        self.check_room(work)
        self.counters.add("pending_requests")
        self.counters.add("pending_tokens", work)
        try:
            result = await model.client.run(model.served.name, verb, inputs, options, work)
        finally:
            self.counters.add("pending_requests", -1)
            self.counters.add("pending_tokens", -work)
        self.counters.add("inputs", len(inputs))
        self.counters.add("tokens", tokens)
        return result


def overloaded() -> RequestError:
    """The refusal of a request that the queue has no room for."""
    return RequestError(429, "server", "is busy", "Try again in a second", retry_after=1)


def can(model: FrontModel, verb: str, task: str = "", images: Collection[bool] = (False,)) -> bool:
    """Whether a model of images, or of texts, can do a verb, and was fine-tuned for a task if one is named."""
    return (
        model.served.images in images
        and (not verb or verb in model.served.verbs)
        and (not task or model.served.task == task)
    )
