"""Opening a model folder: ours, or any BERT that Hugging Face's tools have written."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.data.examples import Example, Question, Sentence
from bertsmith.data.plan import Pairs
from bertsmith.errors import FolderError, TextError
from bertsmith.models import folder as folders
from bertsmith.models import sentence as sentences
from bertsmith.models.dialect import dialect_of
from bertsmith.models.folder import Opened
from bertsmith.models.sentence import SentenceConfig
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.base import Objective
from bertsmith.objectives.masked import MaskedLM
from bertsmith.tasks import TASKS
from bertsmith.tasks.base import Task, predict
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.use import likelihood
from bertsmith.use.fill import Filled, fill
from bertsmith.use.likelihood import Form, Scored
from bertsmith.use.vectors import Embedder

Text = str | tuple[str, str]  # one text, or a pair
WORDS = re.compile(r"\w+|[^\w\s]")


class Model:
    """A trained model in a person's hands. What it was not trained for, it says so in one line."""

    def __init__(
        self,
        objective: Objective,
        tokenizer: Tokenizer,
        place: str,
        *,
        guesses: bool = True,
        sentence: SentenceConfig | None = None,
    ) -> None:
        self.objective, self.tokenizer, self.place = objective, tokenizer, place
        self.guesses = guesses  # whether there is a masked-word head that has learnt something
        self.sentence = sentence or SentenceConfig()
        self._embedders: dict[tuple[Any, ...], Embedder] = {}  # packing weights takes longer than a text

    @property
    def trunk(self) -> Transformer:
        return self.objective.trunk

    @property
    def device(self) -> torch.device:
        return self.trunk.embedding.weight.device

    @property
    def length(self) -> int:
        """Tokens of a sequence at most."""
        return self.trunk.config.length

    # ------------------------------------------------------------------------------------- masked words

    def fill(self, text: str, top: int = 5) -> Filled:
        """The best words for every blank of a text."""
        return self.fill_all([text], top)[0]

    def fill_all(self, texts: Sequence[str], top: int = 5) -> list[Filled]:
        """The same for many texts, in order."""
        return fill(self.masked("Blanks"), self.tokenizer, texts, top)

    def score(self, texts: Sequence[str], form: Form = "within_word") -> list[Scored]:
        """How likely each text is: its pseudo-log-likelihood."""
        return likelihood.score(self.masked("Scores"), self.tokenizer, texts, form=form, device=self.device)

    # ----------------------------------------------------------------------------------------- vectors

    def embed(self, texts: Sequence[str], **how: Any) -> NDArray[np.float32]:
        """One vector for each text, pooled as the folder says; `how` is that of `use.vectors.Embedder`."""
        length = min(self.sentence.length or self.length, self.length)
        own = {"pooling": self.sentence.pooling, "normalise": self.sentence.normalise, "length": length}
        asked = tuple(sorted({**own, **how}.items()))
        if asked not in self._embedders:
            self._embedders[asked] = Embedder(self.trunk, self.tokenizer, **dict(asked))
        return self._embedders[asked](texts)

    # ------------------------------------------------------------------------------------------- tasks

    def classify(self, texts: Sequence[Text]) -> list[dict[str, Any]]:
        """The class, number or labels of each text, or pair of texts."""
        self._need("classify", texts)
        return self.predict([_example(number, text) for number, text in enumerate(texts, 1)])

    def tag(self, texts: Sequence[str | Sequence[str]]) -> list[dict[str, Any]]:
        """A tag for every word. A text that is not yet in words is cut at blanks and punctuation."""
        self._need("tag", texts)
        cut = [tuple(WORDS.findall(text)) if isinstance(text, str) else tuple(text) for text in texts]
        return self.predict([Sentence(place=f"text {number}", words=words) for number, words in enumerate(cut, 1)])

    def answer(self, question: str, passage: str) -> dict[str, Any]:
        """The stretch of the passage that answers the question; empty if there is none."""
        self._need("answer")
        asked = Question(place="question", name="question", question=question, passage=passage)
        return self.predict([asked])[0]

    def choose(self, beginning: str, endings: Sequence[str]) -> dict[str, Any]:
        """The ending that goes best with the beginning."""
        self._need("choose")
        return self.predict([Example(place="choice", texts=(beginning, *endings))])[0]

    def predict(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        """What the task says of each example, in order."""
        task = self.objective
        assert isinstance(task, Task)
        items = task.items(examples, self.tokenizer, self.length)
        return predict(task, examples, items, device=self.device)

    def stream(self, examples: Iterator[Any], together: int = 1024) -> Iterator[dict[str, Any]]:
        """The same for any number of examples, as they come."""
        while some := list(islice(examples, together)):
            yield from self.predict(some)

    def masked(self, what: str = "Scores") -> MaskedLM:
        """The objective with the head that guesses words."""
        if not self.guesses or not isinstance(self.objective, MaskedLM):
            remedy = f"{what} need a model pretrained on masked words"
            if "judge" in dialect_of(self.trunk.config).parts:
                remedy += ", as an ELECTRA's generator is"
            raise FolderError(self.place, "has no masked-word head", remedy)
        return self.objective

    def _need(self, kind: str, texts: Any = ()) -> None:
        if not isinstance(self.objective, TASKS[kind]):
            remedy = f"Fine-tune it first: bertsmith finetune {self.place} DATA --task {kind} --out runs/mine"
            raise FolderError(self.place, f"was not fine-tuned to {kind}", remedy)
        if isinstance(texts, str):
            raise TextError("texts", "is one text, not several", "Put it into a list")


def load(folder: str | Path, device: str = "cpu") -> Model:
    """The model in a folder with config.json, model.safetensors and tokenizer.json."""
    path = Path(folder)
    opened = folders.read(path)
    tokenizer = Tokenizer.load(path)
    if tokenizer.vocabulary > opened.config.vocabulary:
        fact = f"the tokenizer has {tokenizer.vocabulary} pieces, the model {opened.config.vocabulary}"
        raise FolderError(path, fact, "The two do not belong together")
    with torch.device("meta"):
        objective = _objective(opened)
    objective.to_empty(device=device)
    missing, _ = objective.load_state_dict(opened.state, strict=False)
    if missing and opened.learnt is not None:
        raise FolderError(path, f"lacks the weight '{missing[0]}', which {opened.learnt.task} needs")
    sentence = sentences.read(path)
    return Model(objective.eval(), tokenizer, str(path), guesses="head" in opened.parts, sentence=sentence)


def _objective(opened: Opened) -> Objective:
    """The network with the heads that the folder holds."""
    trunk, learnt = Transformer(opened.config), opened.learnt
    if learnt is None:
        pairs: Pairs = "none"
        if {"pooler", "next"} <= opened.parts:
            pairs = "order" if opened.raw.get("pairs", dialect_of(opened.config).pairs) == "order" else "next"
        return MaskedLM(trunk, MaskedLM.Config(pairs=pairs))
    kind, config, labels = TASKS[learnt.task], TASKS[learnt.task].Config(), learnt.labels
    match learnt.task:
        case "classify":
            config = kind.Config(answer=learnt.answer, pooling=learnt.pooling)
        case "answer":
            said, length = opened.raw.get("bertsmith"), opened.config.length
            threshold = said.get("threshold") if isinstance(said, dict) else None
            config = kind.Config(
                question=min(config.question, length // 4),
                overlap=min(config.overlap, length // 3),
                threshold=threshold if isinstance(threshold, float) else None,
            )
        case "choose":
            labels = ()  # any number of endings can be compared
    return kind(trunk, config, labels)


def _example(number: int, text: Text) -> Example:
    return Example(place=f"text {number}", texts=(text,) if isinstance(text, str) else tuple(text))
