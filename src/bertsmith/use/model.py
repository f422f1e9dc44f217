"""A trained model in a person's hands: what it may be asked, whatever it has learnt."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.data.asked import WORDS, LearntFrom
from bertsmith.data.examples import Example, Question, Sentence
from bertsmith.errors import FolderError, TextError
from bertsmith.models.decoder import Decoder
from bertsmith.models.dialects import dialect_of
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.networks import Network
from bertsmith.models.search import SearchConfig
from bertsmith.models.sentence import SentenceConfig
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.base import Objective
from bertsmith.objectives.causal import NextToken
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.onward import Onward
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.tasks import TASKS
from bertsmith.tasks.base import Task, predict
from bertsmith.tasks.write import Write
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.use import likelihood
from bertsmith.use.fill import Filled, fill
from bertsmith.use.generate import Continued, generate
from bertsmith.use.likelihood import Form, Scored
from bertsmith.use.shots import classify
from bertsmith.use.translate import Aligned, Translated, align, translate
from bertsmith.use.vectors import Embedder

Text = str | tuple[str, str]  # one text, or a pair


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
        learnt_from: Mapping[str, Any] | None = None,
    ) -> None:
        self.objective, self.tokenizer, self.place = objective, tokenizer, place
        self.guesses = guesses  # whether it has learnt to guess words
        self.sentence = sentence or SentenceConfig()
        self.learnt_from = learnt_from or {}  # the columns of the training data, where the folder tells them
        self._embedders: dict[tuple[Any, ...], Embedder] = {}  # packing weights takes longer than a text
        self._decoders: dict[tuple[Any, ...], Decoder] = {}

    @property
    def trunk(self) -> Network:
        """The network that reads; of two transformers, the first."""
        whole = self.objective.trunk
        return whole.encoder if isinstance(whole, EncoderDecoder) else whole

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
        """How likely each text is: its log-likelihood, or what a model of masked words has in its place."""
        return likelihood.score(self.guesser(), self.tokenizer, texts, form=form, device=self.device)

    # -------------------------------------------------------------------------------------- next words

    def generate(self, prompts: Sequence[str], **how: Any) -> list[str]:
        """What a model makes of each prompt, in order: the prompt gone on with, or, by a T5, what it writes about it.

        `how` is that of `continue_all`. Samples follow each other.
        """
        found = self.continue_all(prompts, **how)
        _warn("prompt", found)
        return [text for one in found for text in one.texts]

    def continue_all(
        self,
        prompts: Sequence[str],
        *,
        stop: Sequence[str] = (),
        precision: Literal["float32", "bfloat16"] = "float32",
        **how: Any,
    ) -> list[Continued]:
        """The same with all there is to know. `stop` are pieces to end at; `how` is that of `SearchConfig`."""
        if not isinstance(self.objective, NextToken | Onward | SpanCorruption | Write):
            remedy = "Only a model pretrained on next tokens or on spans can write, as GPT and T5 are"
            raise FolderError(self.place, "was not trained to tell the next token", remedy)
        config = SearchConfig(**how)
        kept = {self.tokenizer.roles.get("stop"), *self.tokenizer.sentinels}
        return generate(self._decoder(precision, kept), self.tokenizer, prompts, config, stop)

    def translate(self, texts: Sequence[str], **how: Any) -> list[str]:
        """What each text is in the other language, in order; or whatever else the model has learnt to write.

        `how` is that of `translate_all`.
        """
        found = self.translate_all(texts, **how)
        _warn("text", found)
        return [one.translation for one in found]

    def translate_all(
        self,
        texts: Sequence[str],
        *,
        beams: int = 5,
        penalty: float = 1.0,
        precision: Literal["float32", "bfloat16"] = "float32",
    ) -> list[Translated]:
        """The same with all there is to know."""
        if not isinstance(self.objective, Write) or self.objective.config.answer != "text":
            remedy = "Teach it first: bertsmith finetune transformer-small DATA --out runs/mine"
            raise FolderError(self.place, "has not learnt to translate", remedy)
        config = SearchConfig(most=self.objective.most, temperature=0, beams=beams, penalty=penalty)
        decoder = self._decoder(precision, {self.tokenizer.stop})
        return translate(self.objective, decoder, self.tokenizer, texts, config)

    def align(self, found: Translated) -> Aligned:
        """What each piece of a translation was taken from, as far as the network looks at what it has read."""
        assert isinstance(self.objective, Write)
        aligned = align(self.objective, self.tokenizer, found)
        if aligned is None:
            remedy = "Take a model such as lstm-attention"
            raise FolderError(self.place, "has no attention, and so no alignment", remedy)
        return aligned

    def _decoder(self, precision: str, kept: set[int | None]) -> Decoder:
        """The network made ready to write, of special pieces only those that are kept."""
        asked = (precision, frozenset(kept))
        if asked not in self._decoders:
            special = set(self.tokenizer.special.nonzero()[0].tolist())
            start = self.tokenizer.roles.get("padding", 0)
            how: dict[str, Any] = {"never": sorted(special - kept), "start": start}
            self._decoders[asked] = Decoder(self.objective.trunk, getattr(torch, precision), **how)
        return self._decoders[asked]

    def shots(
        self,
        texts: Sequence[Text],
        examples: Sequence[tuple[Text, str]],
        labels: Sequence[str] | Mapping[str, str] | None = None,
        **how: Any,
    ) -> list[dict[str, Any]]:
        """The label of each text and the chance of each label, by examples in the prompt alone. Brown et al. 2020.

        `labels` may give the words that stand for each; `how` is that of `use.shots.classify`.
        """
        return classify(self.next_token(), self.tokenizer, texts, examples, labels, **how)

    def next_token(self) -> NextToken:
        """The objective that tells the next token."""
        if not isinstance(self.objective, NextToken):
            remedy = "Shots need a model that was pretrained on next tokens and not fine-tuned, as GPT is"
            raise FolderError(self.place, "does not tell the next token", remedy)
        return self.objective

    # ----------------------------------------------------------------------------------------- vectors

    def embed(self, texts: Sequence[str], **how: Any) -> NDArray[np.float32]:
        """One vector for each text, pooled as the folder says; `how` is that of `use.vectors.Embedder`."""
        return self.embedder(**how)(texts)

    def embedder(self, **how: Any) -> Embedder:
        """The network made ready for vectors, any number of them."""
        if not isinstance(self.trunk, Transformer):
            raise FolderError(self.place, "gives no vectors of texts", "Take a network such as BERT's")
        length = min(self.sentence.length or self.length, self.length)
        own = {"pooling": self.sentence.pooling, "normalise": self.sentence.normalise, "length": length}
        asked = tuple(sorted({**own, **how}.items()))
        if asked not in self._embedders:
            self._embedders[asked] = Embedder(self.trunk, self.tokenizer, **dict(asked))
        return self._embedders[asked]

    # ------------------------------------------------------------------------------------------- tasks

    def classify(self, texts: Sequence[Text]) -> list[dict[str, Any]]:
        """The class, number or labels of each text, or pair of texts."""
        self._need("classify", texts)
        return self.predict(_examples(texts))

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

    def write(self, texts: Sequence[Text]) -> list[dict[str, Any]]:
        """What is to be written about each text, or pair of texts: words, a class or a number, as it has learnt."""
        self._need("write", texts)
        return self.predict(_examples(texts))

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

    def asked_for(self) -> LearntFrom:
        """What it was taught, and the columns of the data it learnt from: how files are read that it is asked about."""
        task = self.objective
        assert isinstance(task, Task)
        kind, said = task.reads(task.config), self.learnt_from
        tags = frozenset(task.labels) if kind == "tag" else frozenset[str]()
        texts, joined = said.get("texts"), said.get("joined")
        if said.get("kind") != kind or not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            return LearntFrom(kind=kind, tags=tags)
        joined = joined if isinstance(joined, int) and 0 < joined < len(texts) else 1
        return LearntFrom(kind=kind, texts=tuple(texts), joined=joined, tags=tags)

    def guesser(self) -> MaskedLM | NextToken | Onward:
        """The objective that says how likely a word is: hidden in its text, or next in it."""
        return self.objective if isinstance(self.objective, NextToken | Onward) else self.masked()

    def masked(self, what: str = "Scores") -> MaskedLM:
        """The objective with the head that guesses words."""
        if not self.guesses or not isinstance(self.objective, MaskedLM):
            remedy = f"{what} need a model pretrained on masked words"
            if "judge" in dialect_of(self.objective.trunk.config).parts:
                remedy += ", as an ELECTRA's generator is"
            raise FolderError(self.place, "has no masked-word head", remedy)
        return self.objective

    def _need(self, kind: str, texts: Any = ()) -> None:
        if not isinstance(self.objective, TASKS[kind]):
            remedy = f"Fine-tune it first: bertsmith finetune {self.place} DATA --task {kind} --out runs/mine"
            raise FolderError(self.place, f"was not fine-tuned to {kind}", remedy)
        if isinstance(texts, str):
            raise TextError("texts", "is one text, not several", "Put it into a list")


def _examples(texts: Sequence[Text]) -> list[Example]:
    """Texts that nobody has labelled, each with its number for a place."""
    parts = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
    return [Example(place=f"text {number}", texts=one) for number, one in enumerate(parts, 1)]


def _warn(name: str, found: Sequence[Continued | Translated]) -> None:
    """Tell the caller of a method what was too long to be read."""
    for number, one in enumerate(found, 1):
        if one.unread:
            warnings.warn(f"{name} {number}: {one.unread} of its tokens were not read", stacklevel=3)
