"""A loaded model: a network with its heads and its tokenizer, opened from a model folder.

It knows its task, its labels and its device, saves itself, shows what is inside, and prepares its network for
embeddings and for generation; `model.py` adds the calls that use it on texts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.data.labelled.inputs import TrainedOn
from bertsmith.errors import FolderError
from bertsmith.inference import inputs
from bertsmith.inference.embedder import Embedder, LayerJoin, Precision
from bertsmith.inference.fill import MaskPredictor
from bertsmith.inference.save import Origin, save
from bertsmith.inference.training_data import TrainingData
from bertsmith.insight.inspection.assembly import inspect
from bertsmith.insight.inspection.inspection import Inspection
from bertsmith.insight.inspection.subject import Subject
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.generation.engine import DecodingPrecision, GenerationEngine
from bertsmith.models.hf.convert import to_config_json
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.hf.sentence_transformers import SentenceConfig
from bertsmith.models.networks import Network
from bertsmith.models.transformer import Transformer
from bertsmith.nn.pooling import Pooling
from bertsmith.objectives.base import LanguageModel, Objective
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.tasks import TASKS
from bertsmith.tasks.base import Task
from bertsmith.text.forbidden_ids import forbidden_ids
from bertsmith.text.tokenizer import Tokenizer

CHOICES = {"pooling": get_args(Pooling), "layer_join": get_args(LayerJoin), "precision": get_args(Precision)}
MAX_LABELS_SHOWN = 6  # labels in the repr of a model


class LoadedModel:
    """A network with its heads and its tokenizer. Abstract: `Model` is the class that `bertsmith.load` returns."""

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
        self.has_lm_head = has_lm_head
        self.sentence_config = sentence_config or SentenceConfig()
        self.embeds_sentences = sentence_config is not None  # the folder says how texts are pooled
        self.training_data = TrainingData(training_data or {})
        self._origin = origin
        self._embedders: dict[tuple[Any, ...], Embedder] = {}  # prepacking the weights takes longer than one text
        self._engines: dict[tuple[Any, ...], GenerationEngine] = {}

    def __repr__(self) -> str:
        return f"Model({self.description}, '{self.path}')"

    @property
    def description(self) -> str:
        """Kind, size, task and device in a line.

        >>> model.description
        'bert, 2 layers of width 32, ..., cpu'
        """
        config, kind = self.objective.trunk.config, self._kind()
        layers = f"{config.layers} + {config.decoder_layers}" if config.decoder_layers else config.layers
        count = sum(weight.numel() for weight in self.objective.parameters())
        parameters = f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count:,}"
        size = f"{layers} layers of width {config.width}, {parameters} parameters"
        return f"{kind}, {size}, {config.vocabulary:,} tokens, {self._purpose()}, {self.device}"

    def _kind(self) -> str:
        """The model type, as transformers names it."""
        found = to_config_json(self.objective.trunk.config, ()).get("model_type", type(self.trunk).__name__.lower())
        return str(found)

    def _purpose(self) -> str:
        """The task, or the objective of pretraining, in a few words."""
        task = self.objective
        if not isinstance(task, Task):
            return "sentence embeddings" if self.embeds_sentences else f"pretrained ({type(task).__name__})"
        some = ", ".join(task.labels[:MAX_LABELS_SHOWN]) + (", ..." if len(task.labels) > MAX_LABELS_SHOWN else "")
        return self.task + (f" ({some})" if some else "")

    @property
    def task(self) -> str:
        """The task of fine-tuning, such as `classify`; empty after pretraining alone.

        >>> bertsmith.load("runs/reviews").task
        'classify'
        """
        return next((name for name, kind in TASKS.items() if type(self.objective) is kind), "")

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes or tags of a fine-tuned model; empty if it has none.

        >>> bertsmith.load("runs/reviews").labels
        ('bad', 'good')
        """
        return self.objective.labels

    @property
    def trunk(self) -> Network:
        """The network without its heads; of an encoder-decoder, the encoder.

        >>> model.trunk.config.width
        32
        """
        whole = self.objective.trunk
        return whole.encoder if isinstance(whole, EncoderDecoder) else whole

    @property
    def device(self) -> torch.device:
        """The device that the weights are on.

        >>> model.device.type
        'cpu'
        """
        return self.trunk.embedding.weight.device

    @property
    def max_length(self) -> int:
        """The longest sequence that the network reads, in tokens.

        >>> model.max_length
        64
        """
        return self.trunk.config.max_length

    @property
    def prediction_length(self) -> int:
        """The tokens of an input that a fine-tuned model predicts from: as many as it was trained and scored with.

        >>> bertsmith.load("runs/reviews").prediction_length
        64
        """
        return self.training_data.length(self.max_length)

    def save(self, folder: str | Path) -> Path:
        """Write a model folder, which `bertsmith.load` and transformers open, and return its path.

        >>> folder = model.save("copy")
        >>> bertsmith.load(folder).score("the cat") == model.score("the cat")
        True
        """
        if self._origin is None:
            raise FolderError(self.path, "is a model in training", "Its run writes the folder")
        if not isinstance(folder, str | Path) or not str(folder):
            raise FolderError("folder", f"is {inputs.short_repr(folder)}", "Give a path")
        sentence_config = self.sentence_config if self.embeds_sentences else None
        save(self.objective, self.tokenizer, sentence_config, self._origin, Path(folder))
        return Path(folder)

    def inspect(self, texts: Any, **options: Any) -> Inspection:
        """What the model looks at, predicts and knows of a text, a pair of texts as a tuple, or a list of these.

        In a notebook the result shows itself as a page; `save` writes it as .html, .json or .png. `options`: target (of
        an encoder-decoder, else its own output), max_length, attribute=False (integrated gradients take longest),
        map_file (a file with the texts of a map) and word (whose occurrences are mapped), and passage (a page of text
        for the cells of a recurrent network).

        >>> model.inspect("the cat sees the [MASK] .")
        Inspection
        mine: 'the cat sees the [MASK] .'
          self-attention: 8 heads: ...
          [MASK] at 5: ...
          [MASK] at 5: ... (gap ...%)
        """
        return inspect([self.subject()], texts, **inputs.known_options(inspect, options))

    def subject(self, name: str = "") -> Subject:
        """The model as inspections show it, by a name; by default that of its folder.

        >>> model.subject().name
        'mine'
        """
        path = Path(self.path)
        usual = path.resolve().parent.name if path.name == "model" else path.resolve().name
        return Subject(
            name or usual,
            self._kind(),
            self._purpose(),
            self.objective,
            self.tokenizer,
            has_lm_head=self.has_lm_head or self.objective.generates,
            pooling=self.sentence_config.pooling,
        )

    def embedder(self, **options: Any) -> Embedder:
        """The network prepared for sentence embeddings of any number of texts; it is kept for the next call.

        `options` are those of `embed`: pooling, layers, layer_join, normalise, max_length, batch_tokens, precision.

        >>> embedder = model.embedder(pooling="mean")
        >>> [vectors.shape for vectors in embedder.stream(["the cat", "the dog"])]
        [(2, 32)]
        """
        if not isinstance(self.trunk, Transformer):
            raise FolderError(self.path, "gives no vectors of texts", "Take a network such as BERT's")
        config = self.sentence_config
        length = min(config.length or self.max_length, self.max_length)
        defaults = {"pooling": config.pooling, "normalise": config.normalise, "max_length": length}
        chosen = {**defaults, **inputs.known_options(Embedder, options)}
        for name in CHOICES.keys() & chosen:
            inputs.check_choice(chosen[name], name, CHOICES[name])
        if "layers" in chosen:
            chosen["layers"] = inputs.as_integers(chosen["layers"], "layers")
        key = tuple(sorted(chosen.items()))
        if key not in self._embedders:
            self._embedders[key] = Embedder(self.trunk, self.tokenizer, **chosen)
        return self._embedders[key]

    def _engine(self, precision: str, allowed_special: set[int | None]) -> GenerationEngine:
        """The network prepared for generation; of the special tokens it writes only those that are allowed."""
        inputs.check_choice(precision, "precision", get_args(DecodingPrecision))
        key = (precision, frozenset(allowed_special))
        if key not in self._engines:
            self._engines[key] = GenerationEngine(
                self.objective.trunk,
                getattr(torch, precision),
                forbidden_ids=forbidden_ids(self.tokenizer, self.trunk.config.vocabulary, allowed_special),
                decoder_start_id=self.tokenizer.roles.get("padding", 0),
            )
        return self._engines[key]

    def input_format(self) -> TrainedOn:
        """The task's file format and the columns of the training data, by which files for `predict` are read.

        >>> bertsmith.load("runs/reviews").input_format().kind
        'classify'
        """
        return self.training_data.input_format(self.objective)

    def language_model(self) -> LanguageModel:
        """The language model, masked or causal, that gives tokens their probabilities.

        >>> type(model.language_model()).__name__
        'MaskedLM'
        """
        if self.has_lm_head and isinstance(self.objective, LanguageModel):
            return self.objective
        return self.masked_lm()  # which refuses the others

    def masked_lm(self, purpose: str = "Scores") -> MaskedLM:
        """The masked language model with its head; a model without one is refused, with the purpose in the message.

        >>> model.masked_lm().config.mask_rate
        0.15
        """
        if not self.has_lm_head or not isinstance(self.objective, MaskedLM):
            remedy = f"{purpose} need a model pretrained on masked words"
            if "discriminator" in layout_of(self.objective.trunk.config).parts:
                remedy += ", as an ELECTRA's generator is"
            raise FolderError(self.path, "has no masked-word head", remedy)
        return self.objective

    def mask_predictor(self) -> MaskPredictor:
        """The logits of a masked language model at some positions; a model without a head is refused.

        >>> callable(model.mask_predictor())
        True
        """
        objective = self.masked_lm("Blanks").eval()
        return lambda tokens, positions: objective.logits(objective.trunk(tokens, selected=positions))

    def task_outputs(self, tokens: Tokens) -> list[Tensor]:
        """The outputs of a fine-tuned network for each sequence of a batch, such as logits.

        >>> from bertsmith.data.batch import Tokens
        >>> [logits] = bertsmith.load("runs/reviews").task_outputs(Tokens.from_rows([[2, 3]], [[0, 0]]))
        >>> len(logits)
        2
        """
        assert isinstance(self.objective, Task)
        return self.objective.outputs(tokens)

    def causal_lm(self) -> CausalLM:
        """The causal language model of a GPT; other models are refused.

        >>> type(bertsmith.load("runs/gpt").causal_lm()).__name__
        'CausalLM'
        """
        if not isinstance(self.objective, CausalLM):
            remedy = "Few-shot prompts need a causal language model that was not fine-tuned, such as GPT"
            raise FolderError(self.path, "does not predict the next token", remedy)
        return self.objective
