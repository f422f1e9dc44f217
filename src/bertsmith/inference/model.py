"""A trained model in a person's hands: what it may be asked, whatever it has learnt. One text or many, everywhere."""

import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args, overload

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.data.labelled.inputs import TrainedOn
from bertsmith.errors import FolderError, RecipeError, suggest
from bertsmith.inference import inputs, likelihood
from bertsmith.inference.embedder import Embedder, LayerJoin, Precision
from bertsmith.inference.few_shot import classify_few_shot
from bertsmith.inference.fill import FilledText, fill
from bertsmith.inference.generate import GeneratedText, generate
from bertsmith.inference.inputs import Texts
from bertsmith.inference.likelihood import PllForm, ScoredText
from bertsmith.inference.prediction import Prediction
from bertsmith.inference.save import Origin, save
from bertsmith.inference.translate import TokenAlignment, TranslatedText, align, translate
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.generation.engine import GenerationEngine
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.models.hf.convert import to_config_json
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.hf.sentence_transformers import SentenceConfig
from bertsmith.models.networks import Network
from bertsmith.models.transformer import Transformer
from bertsmith.nn.pooling import Pooling
from bertsmith.objectives.base import Objective
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.recurrent_lm import RecurrentLM
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.tasks import TASKS
from bertsmith.tasks.base import Task, predict
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.tokenizer import Tokenizer

Text = str | tuple[str, str]  # one text, or a pair
CHOICES = {"pooling": get_args(Pooling), "layer_join": get_args(LayerJoin), "precision": get_args(Precision)}
MAX_LABELS_SHOWN = 6  # labels that a model's name shows, at most


class Model:
    """A trained model. Each method takes one text and gives one result, or a list and gives a list.

        model = bertsmith.load("runs/mine")
        model.fill("The capital of France is [MASK].").best
        model.embed(["A text.", "Another."]).shape
        model.predict("I liked it.").label              # after bertsmith.finetune
        model.save("elsewhere")

    What it was not trained for, it says so in one line.
    """

    def __init__(
        self,
        objective: Objective,
        tokenizer: Tokenizer,
        path: str,
        *,
        has_lm_head: bool = True,
        sentence_config: SentenceConfig | None = None,
        origin: Origin | None = None,
        training_data: Mapping[str, Any] | None = None,
    ) -> None:
        self.objective, self.tokenizer, self.path = objective, tokenizer, path
        self.has_lm_head = has_lm_head  # whether it has learnt to guess words
        self.sentence_config = sentence_config or SentenceConfig()
        self.embeds_sentences = sentence_config is not None  # the folder says how a vector is made of a text
        self.training_data = training_data or {}  # the columns of the training data, where the folder tells them
        self._origin = origin
        self._embedders: dict[tuple[Any, ...], Embedder] = {}  # packing weights takes longer than a text
        self._decoders: dict[tuple[Any, ...], GenerationEngine] = {}

    def __repr__(self) -> str:
        shape = self.objective.trunk.config
        kind = to_config_json(shape, ()).get("model_type", type(self.trunk).__name__.lower())
        layers = f"{shape.layers} + {shape.decoder_layers}" if shape.decoder_layers else shape.layers
        count = sum(weight.numel() for weight in self.objective.parameters())
        many = f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count:,}"
        size = f"{layers} layers of width {shape.width}, {many} parameters"
        return (
            f"Model({kind}, {size}, {shape.vocabulary:,} pieces, {self._task_summary()}, {self.device}, '{self.path}')"
        )

    def _task_summary(self) -> str:
        """What it has learnt, in a few words."""
        task = self.objective
        if not isinstance(task, Task):
            return "sentence embeddings" if self.embeds_sentences else f"pretrained ({type(task).__name__})"
        some = ", ".join(task.labels[:MAX_LABELS_SHOWN]) + (", ..." if len(task.labels) > MAX_LABELS_SHOWN else "")
        return self.task + (f" ({some})" if some else "")

    @property
    def task(self) -> str:
        """What it was fine-tuned for, as `classify`; empty where it was only pretrained."""
        return next((name for name, kind in TASKS.items() if type(self.objective) is kind), "")

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes or tags that it knows; none of a model without."""
        return self.objective.labels if isinstance(self.objective, Task) else ()

    def save(self, folder: str | Path) -> Path:
        """Write a model folder, which `bertsmith.load` and transformers open; the path of it."""
        if self._origin is None:
            raise FolderError(self.path, "is a model in training", "Its run writes the folder")
        if not isinstance(folder, str | Path) or not str(folder):
            raise FolderError("folder", f"is {inputs.short_repr(folder)}", "Give a path")
        save(
            self.objective,
            self.tokenizer,
            self.sentence_config if self.embeds_sentences else None,
            self._origin,
            Path(folder),
        )
        return Path(folder)

    @property
    def trunk(self) -> Network:
        """The network that reads; of two transformers, the first."""
        whole = self.objective.trunk
        return whole.encoder if isinstance(whole, EncoderDecoder) else whole

    @property
    def device(self) -> torch.device:
        return self.trunk.embedding.weight.device

    @property
    def max_length(self) -> int:
        """Tokens of a sequence at most."""
        return self.trunk.config.max_length

    # ------------------------------------------------------------------------------------- masked words

    @overload
    def fill(self, texts: str, top_k: int = 5) -> FilledText: ...  # type: ignore[overload-overlap]  # a text is one

    @overload
    def fill(self, texts: Iterable[str], top_k: int = 5) -> list[FilledText]: ...

    def fill(self, texts: Texts, top_k: int = 5) -> FilledText | list[FilledText]:
        """The best words for every blank of a text, or of many: `fill("It is [MASK].").best`."""
        asked, one = inputs.as_texts(texts)
        if not isinstance(top_k, int) or top_k < 1:
            raise RecipeError("top_k", f"is {inputs.short_repr(top_k)}", "Give 1 or more")
        found = fill(self.masked_lm("Blanks"), self.tokenizer, asked, top_k)
        return found[0] if one else found

    @overload
    def score(self, texts: str, pll_form: PllForm = "within_word") -> ScoredText: ...  # type: ignore[overload-overlap]

    @overload
    def score(self, texts: Iterable[str], pll_form: PllForm = "within_word") -> list[ScoredText]: ...

    def score(self, texts: Texts, pll_form: PllForm = "within_word") -> ScoredText | list[ScoredText]:
        """How likely a text is: its log-likelihood, or the pseudo-log-likelihood of a model of masked words.

        `score("A text.").log_likelihood` is the natural logarithm; `.perplexity` the figure of one text.
        """
        asked, one = inputs.as_texts(texts)
        found = likelihood.score(self.language_model(), self.tokenizer, asked, pll_form=pll_form, device=self.device)
        return found[0] if one else found

    # -------------------------------------------------------------------------------------- next words

    def generate(self, prompts: Texts, **how: Any) -> Any:
        """A prompt gone on with, or, by a T5, what it writes about it: `generate("Once", max_new_tokens=20)`.

        One prompt gives a text, or a list of them with `samples=3`; a list gives a list, samples after each other.
        `how` is that of `continue_all`.
        """
        asked, one = inputs.as_texts(prompts, "prompts")
        found = self.generate_all(asked, **how)
        _warn_truncated("prompt", found)
        written = [text for answer in found for text in answer.texts]
        return written[0] if one and len(written) == 1 else written

    def generate_all(
        self,
        prompts: Sequence[str],
        *,
        stop: Sequence[str] = (),
        precision: Literal["float32", "bfloat16"] = "float32",
        **how: Any,
    ) -> list[GeneratedText]:
        """The same with all there is to know. `stop` are pieces to end at; `how` is that of `SearchConfig`."""
        if not isinstance(self.objective, CausalLM | RecurrentLM | SpanCorruption | TextToText):
            remedy = "Only a model pretrained on next tokens or on spans can write, as GPT and T5 are"
            raise FolderError(self.path, "was not trained to tell the next token", remedy)
        config = GenerationConfig(**_known_options(GenerationConfig, how))
        kept = {self.tokenizer.roles.get("stop"), *self.tokenizer.sentinels}
        return generate(self._decoder(precision, kept), self.tokenizer, prompts, config, stop)

    @overload
    def translate(self, texts: str, **how: Any) -> str: ...

    @overload
    def translate(self, texts: Iterable[str], **how: Any) -> list[str]: ...

    def translate(self, texts: Texts, **how: Any) -> str | list[str]:
        """What a text is in the other language; or whatever else the model has learnt to write.

        `how` is that of `translate_all`: num_beams, length_penalty and precision.
        """
        asked, one = inputs.as_texts(texts)
        found = self.translate_all(asked, **_known_options(self.translate_all, how))
        _warn_truncated("text", found)
        return found[0].translation if one else [answer.translation for answer in found]

    def translate_all(
        self,
        texts: Sequence[str],
        *,
        num_beams: int = 5,
        length_penalty: float = 1.0,
        precision: Literal["float32", "bfloat16"] = "float32",
    ) -> list[TranslatedText]:
        """The same with all there is to know."""
        if not isinstance(self.objective, TextToText) or self.objective.config.output != "text":
            remedy = "Teach it first: bertsmith finetune transformer-small DATA --out runs/mine"
            raise FolderError(self.path, "has not learnt to translate", remedy)
        config = GenerationConfig(
            max_new_tokens=self.objective.max_new_tokens,
            temperature=0,
            num_beams=num_beams,
            length_penalty=length_penalty,
        )
        decoder = self._decoder(precision, {self.tokenizer.stop_id})
        return translate(self.objective, decoder, self.tokenizer, texts, config)

    def align(self, translation: TranslatedText) -> TokenAlignment:
        """What each piece of a translation was taken from, as far as the network looks at what it has read."""
        assert isinstance(self.objective, TextToText)
        aligned = align(self.objective, self.tokenizer, translation)
        if aligned is None:
            remedy = "Take a model such as lstm-attention"
            raise FolderError(self.path, "has no attention, and so no alignment", remedy)
        return aligned

    def _decoder(self, precision: str, allowed_special: set[int | None]) -> GenerationEngine:
        """The network made ready to write, of special pieces only those that are kept."""
        asked = (precision, frozenset(allowed_special))
        if asked not in self._decoders:
            special = set(self.tokenizer.special_mask.nonzero()[0].tolist())
            start = self.tokenizer.roles.get("padding", 0)
            how: dict[str, Any] = {"forbidden_ids": sorted(special - allowed_special), "decoder_start_id": start}
            self._decoders[asked] = GenerationEngine(self.objective.trunk, getattr(torch, precision), **how)
        return self._decoders[asked]

    def classify_few_shot(
        self,
        texts: Sequence[Text],
        examples: Sequence[tuple[Text, str]],
        labels: Sequence[str] | Mapping[str, str] | None = None,
        **how: Any,
    ) -> list[dict[str, Any]]:
        """The label of each text and the chance of each label, by examples in the prompt alone. Brown et al. 2020.

        `labels` may give the words that stand for each; `how` is that of `use.shots.classify`.
        """
        return classify_few_shot(self.causal_lm(), self.tokenizer, texts, examples, labels, **how)

    def causal_lm(self) -> CausalLM:
        """The objective that tells the next token."""
        if not isinstance(self.objective, CausalLM):
            remedy = "Shots need a model that was pretrained on next tokens and not fine-tuned, as GPT is"
            raise FolderError(self.path, "does not tell the next token", remedy)
        return self.objective

    # ----------------------------------------------------------------------------------------- vectors

    def embed(self, texts: Texts, **how: Any) -> NDArray[np.float32]:
        """The vector of a text, or a row for each of many, pooled as the folder says.

        `how`: `pooling`, `layers=[-1, -2]`, `layer_join`, `normalise`, `max_length`, `batch_tokens` and `precision`.
        """
        asked, one = inputs.as_texts(texts)
        found = self.embedder(**how)(asked)
        return found[0] if one else found

    encode = embed  # what sentence-transformers calls it

    def embedder(self, **how: Any) -> Embedder:
        """The network made ready for vectors, any number of them."""
        if not isinstance(self.trunk, Transformer):
            raise FolderError(self.path, "gives no vectors of texts", "Take a network such as BERT's")
        length = min(self.sentence_config.length or self.max_length, self.max_length)
        own = {
            "pooling": self.sentence_config.pooling,
            "normalise": self.sentence_config.normalise,
            "max_length": length,
        }
        wanted = {**own, **_known_options(Embedder, how)}
        for name, choices in CHOICES.items():
            if name in wanted and wanted[name] not in choices:
                raise RecipeError(name, f"is {inputs.short_repr(wanted[name])}", suggest(str(wanted[name]), choices))
        if "layers" in wanted:
            wanted["layers"] = inputs.as_integers(wanted["layers"], "layers")
        key = tuple(sorted(wanted.items()))
        if key not in self._embedders:
            self._embedders[key] = Embedder(self.trunk, self.tokenizer, **wanted)
        return self._embedders[key]

    # ------------------------------------------------------------------------------------------- tasks

    def classify(self, texts: Any) -> Any:
        """The class, number or labels of a text, a pair of texts as a tuple, or many: `classify("Good!").label`."""
        return self._predict_task("classify", texts)

    def tag(self, texts: Any) -> Any:
        """A tag for every word of a text, or of many. Words may be given as a tuple; else punctuation is cut off."""
        return self._predict_task("tag", texts)

    def answer(self, question: Any, context: Any = None) -> Any:
        """The span of the passage that answers the question; empty if there is none.

        Many: `answer([("Who?", "Ann wrote it."), ("When?", "In 1850.")])`, or several questions about one passage.
        """
        if isinstance(context, str):
            many = isinstance(question, list)
            return self._predict_task("answer", [(one, context) for one in question] if many else (question, context))
        return self._predict_task("answer", question if context is None else (question, context))

    def choose(self, beginning: Any, endings: Any = None) -> Any:
        """The ending that goes best with the beginning: `choose("It rained,", ["so we stayed.", "so a cat."])`."""
        return self._predict_task("choose", beginning if endings is None else (beginning, endings))

    def write(self, texts: Any) -> Any:
        """What is to be written about a text, or a pair: words, a class or a number, as it has learnt; or of many."""
        return self._predict_task("write", texts)

    def predict(self, texts: Any) -> Any:
        """What the model was taught, for one text or many: a label, a number, tags, an answer, an ending or a text.

        model.predict("I liked it.").label
        model.predict([("A man sleeps.", "Nobody is awake."), ("It rains.", "It is wet.")])
        model.predict({"question": "Who wrote it?", "context": "Ann wrote it."}).answer
        """
        if not isinstance(self.objective, Task):
            remedy = f"Fine-tune it first: bertsmith finetune {self.path} DATA --out runs/mine"
            remedy = "Take its vectors: embed" if self.embeds_sentences else remedy
            raise FolderError(self.path, "was not fine-tuned to predict anything", remedy)
        examples, one = inputs.as_examples(self.input_format(), texts)
        items = self.objective.preprocess(examples, self.tokenizer, self.max_length)
        found = [Prediction(said) for said in predict(self.objective, examples, items, device=self.device)]
        return found[0] if one else found

    def predict_stream(self, examples: Iterator[Any], chunk_size: int = 1024) -> Iterator[dict[str, Any]]:
        """The same for any number of examples, as they come."""
        while some := list(islice(examples, chunk_size)):
            yield from self.predict(some)

    def input_format(self) -> TrainedOn:
        """What it was taught, and the columns of the data it learnt from: how files are read that it is asked about."""
        task = self.objective
        assert isinstance(task, Task)
        kind, said = task.file_kind(task.config), self.training_data
        tags = frozenset(task.labels) if kind == "tag" else frozenset[str]()
        texts, joined = said.get("texts"), said.get("joined")
        if said.get("kind") != kind or not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            return TrainedOn(kind=kind, tags=tags)
        joined = joined if isinstance(joined, int) and 0 < joined < len(texts) else 1
        return TrainedOn(kind=kind, texts=tuple(texts), context_columns=joined, tags=tags)

    def language_model(self) -> MaskedLM | CausalLM | RecurrentLM:
        """The objective that says how likely a word is: hidden in its text, or next in it."""
        return self.objective if isinstance(self.objective, CausalLM | RecurrentLM) else self.masked_lm()

    def masked_lm(self, what: str = "Scores") -> MaskedLM:
        """The objective with the head that guesses words."""
        if not self.has_lm_head or not isinstance(self.objective, MaskedLM):
            remedy = f"{what} need a model pretrained on masked words"
            if "discriminator" in layout_of(self.objective.trunk.config).parts:
                remedy += ", as an ELECTRA's generator is"
            raise FolderError(self.path, "has no masked-word head", remedy)
        return self.objective

    def _predict_task(self, task: str, texts: Any) -> Any:
        if not isinstance(self.objective, TASKS[task]):
            remedy = f"Fine-tune it first: bertsmith finetune {self.path} DATA --task {task} --out runs/mine"
            raise FolderError(self.path, f"was not fine-tuned to {task}", remedy)
        return self.predict(texts)


def _known_options(function: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the words that a function has for them; one that it does not know is told with the nearest."""
    words = [name for name, one in inspect.signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY]
    for name in options:
        if name not in words:
            raise RecipeError(name, "is not an option here", suggest(name, words))
    return dict(options)


def _warn_truncated(name: str, found: Sequence[GeneratedText | TranslatedText]) -> None:
    """Tell the caller of a method what was too long to be read."""
    for number, one in enumerate(found, 1):
        if one.truncated_tokens:
            warnings.warn(f"{name} {number}: {one.truncated_tokens} of its tokens were not read", stacklevel=3)
