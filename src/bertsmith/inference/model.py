"""The model that users call: fill-mask, scores, generation, translation, embeddings and the tasks of fine-tuning.

Every call takes one text and returns one result, or takes a list and returns a list.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import FolderError, RecipeError
from bertsmith.inference import inputs, likelihood
from bertsmith.inference.few_shot import classify_few_shot
from bertsmith.inference.fill import FilledText, fill
from bertsmith.inference.generate import generate_texts
from bertsmith.inference.inputs import Texts
from bertsmith.inference.likelihood import ScoredText
from bertsmith.inference.loaded import LoadedModel
from bertsmith.inference.masked_copies import PllForm
from bertsmith.inference.prediction import Prediction
from bertsmith.inference.translate import TokenAlignment, TranslatedText, align, translate_texts
from bertsmith.models.generation.engine import DecodingPrecision
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.models.hf.folder import finetune_command
from bertsmith.tasks import TASKS, task_name
from bertsmith.tasks.base import Task, predict
from bertsmith.tasks.text_to_text import TextToText

Text = str | tuple[str, str]  # one text, or a pair


class Model(LoadedModel):
    """A trained model, as `bertsmith.load` returns it. A call that it was not trained for is refused in one line.

    >>> model = bertsmith.load("runs/mine")
    >>> model.fill("the cat sees the [MASK] .").best
    '...'
    >>> bertsmith.load("runs/reviews").predict("I liked it.").label
    '...'
    """

    @overload
    def fill(self, texts: str, top_k: int = 5) -> FilledText: ...  # type: ignore[overload-overlap]  # a str is iterable

    @overload
    def fill(self, texts: Iterable[str], top_k: int = 5) -> list[FilledText]: ...

    def fill(self, texts: Texts, top_k: int = 5) -> FilledText | list[FilledText]:
        """Fill-mask: the `top_k` most probable words for every [MASK] of a text, or of many.

        >>> filled = model.fill("the cat sees the [MASK] .", top_k=3)
        >>> [prediction.probability > 0 for prediction in filled.blanks[0]]
        [True, True, True]
        """
        asked, one = inputs.as_texts(texts)
        if type(top_k) is not int or top_k < 1:
            raise RecipeError("top_k", f"is {inputs.short_repr(top_k)}", "Give 1 or more")
        options: dict[str, Any] = {"max_length": self.max_length, "device": self.device}
        filled = fill(self.mask_predictor(), self.tokenizer, asked, top_k, **options)
        return filled[0] if one else filled

    @overload
    def score(self, texts: str, pll_form: PllForm = "within_word") -> ScoredText: ...  # type: ignore[overload-overlap]

    @overload
    def score(self, texts: Iterable[str], pll_form: PllForm = "within_word") -> list[ScoredText]: ...

    def score(self, texts: Texts, pll_form: PllForm = "within_word") -> ScoredText | list[ScoredText]:
        """The log-likelihood and perplexity of a text; of a masked language model, the pseudo-log-likelihood.

        `pll_form` says whether later tokens of the same word are masked, too ("within_word", Kauf and Ivanova 2023) or
        not ("original", Salazar et al. 2020); causal models ignore it.

        >>> scored = model.score("the cat sees the dog .")
        >>> scored.log_likelihood < 0 < scored.perplexity
        True
        """
        asked, one = inputs.as_texts(texts)
        scored = likelihood.score(self.language_model(), self.tokenizer, asked, pll_form=pll_form, device=self.device)
        return scored[0] if one else scored

    def generate(
        self,
        prompts: Texts,
        *,
        full: bool = False,
        stop: str | Sequence[str] = (),
        precision: DecodingPrecision = "float32",
        **options: Any,
    ) -> Any:
        """Continue a prompt, or answer it with an encoder-decoder such as T5.

        One prompt gives a text, or a list with `samples=3`; a list of prompts gives a list, samples after each other.
        With `full`, the result of a prompt is a `GeneratedText`: all its texts, and how many of its tokens did not fit.
        `stop` is a token to end at, or several. `options`: max_new_tokens, min_new_tokens, temperature (0: greedy),
        top_k, top_p, num_beams, length_penalty, samples and seed.

        >>> gpt = bertsmith.load("runs/gpt")
        >>> gpt.generate("the cat", max_new_tokens=5, temperature=0)
        'the cat...'
        >>> len(gpt.generate(["the cat", "a dog"], max_new_tokens=5, samples=2))
        4
        >>> len(gpt.generate("the cat", full=True, samples=2).texts)
        2
        """
        asked, one = inputs.as_texts(prompts, "prompts")
        if not self.objective.generates:
            remedy = "Only causal and text-to-text models generate, such as GPT and T5"
            raise FolderError(self.path, "was not trained to predict the next token", remedy)
        config = GenerationConfig(**inputs.known_options(GenerationConfig, options))
        allowed = {self.tokenizer.roles.get("stop"), *self.tokenizer.sentinels}
        results = generate_texts(self._engine(precision, allowed), self.tokenizer, asked, config, stop)
        if full:
            return results[0] if one else results
        inputs.warn_truncated("prompt", [result.truncated_tokens for result in results])
        texts = [text for result in results for text in result.texts]
        return texts[0] if one and len(texts) == 1 else texts

    @overload
    def translate(self, texts: str, *, full: Literal[False] = False, **options: Any) -> str: ...

    @overload
    def translate(self, texts: str, *, full: Literal[True], **options: Any) -> TranslatedText: ...

    @overload
    def translate(self, texts: Iterable[str], *, full: Literal[False] = False, **options: Any) -> list[str]: ...

    @overload
    def translate(self, texts: Iterable[str], *, full: Literal[True], **options: Any) -> list[TranslatedText]: ...

    def translate(
        self,
        texts: Texts,
        *,
        full: bool = False,
        num_beams: int = 5,
        length_penalty: float = 1.0,
        precision: DecodingPrecision = "float32",
        **unknown: Any,
    ) -> str | TranslatedText | list[str] | list[TranslatedText]:
        """Translate a text, or many, by a model that was fine-tuned on parallel text: beam search with `num_beams`.

        With `full`, each result is a `TranslatedText`, which counts tokens that did not fit, and can be aligned. One
        beam is greedy decoding.

        >>> translator = bertsmith.load("runs/translation")
        >>> len(translator.translate(["a b", "c"], num_beams=2))
        2
        >>> translator.translate("a b", full=True).text
        'a b'
        """
        asked, one = inputs.as_texts(texts)
        inputs.known_options(self.translate, unknown)
        if not isinstance(self.objective, TextToText) or self.objective.config.output != "text":
            remedy = "Fine-tune it first: bertsmith finetune transformer-small DATA --out runs/translation"
            raise FolderError(self.path, "was not fine-tuned to translate", remedy)
        config = GenerationConfig(
            max_new_tokens=self.objective.max_new_tokens,
            num_beams=num_beams,
            length_penalty=length_penalty,
            temperature=0,
        )
        engine = self._engine(precision, {self.tokenizer.stop_id})
        results = translate_texts(self.objective, engine, self.tokenizer, asked, config)
        if full:
            return results[0] if one else results
        inputs.warn_truncated("text", [result.truncated_tokens for result in results])
        return results[0].translation if one else [result.translation for result in results]

    def align(self, translation: TranslatedText) -> TokenAlignment:
        """The attention weights between a translation and its source, token by token. Bahdanau et al. 2015.

        >>> translator = bertsmith.load("runs/translation")
        >>> aligned = translator.align(translator.translate("a b", full=True))
        >>> aligned.weights.shape == (len(aligned.target), len(aligned.source))
        True
        """
        assert isinstance(self.objective, TextToText)
        aligned = align(self.objective, self.tokenizer, translation)
        if aligned is None:
            raise FolderError(self.path, "has no attention, and so no alignment", "Take a model such as lstm-attention")
        return aligned

    def classify_few_shot(
        self,
        texts: Sequence[Text],
        examples: Sequence[tuple[Text, str]],
        labels: Sequence[str] | Mapping[str, str] | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Few-shot classification: a label for each text, by examples in the prompt. Brown et al. 2020.

        `labels` may map each label to the words that stand for it. `options`: template, calibrate (Zhao et al. 2021).

        >>> shots = [("the cat sees", "cat"), ("a dog sees", "dog")]
        >>> [result] = bertsmith.load("runs/gpt").classify_few_shot(["the cat"], shots)
        >>> sorted(result), sorted(result["probabilities"])
        (['label', 'probabilities'], ['cat', 'dog'])
        """
        return classify_few_shot(self.causal_lm(), self.tokenizer, texts, examples, labels, **options)

    def embed(self, texts: Texts, **options: Any) -> NDArray[np.float32]:
        """Sentence embeddings: a vector for a text, or a row for each of many; `encode` is the same.

        `options`: pooling ("mean", "first", "last"; the folder's by default), layers=[-1, -2], layer_join ("sum",
        "concatenate"), normalise, max_length, batch_tokens and precision.

        >>> model.embed(["A text.", "Another."], pooling="mean").shape
        (2, 32)
        """
        asked, one = inputs.as_texts(texts)
        vectors = self.embedder(**options)(asked)
        return vectors[0] if one else vectors

    encode = embed  # the name in sentence-transformers

    def classify(self, texts: Any) -> Any:
        """Text classification: a class, a number or several labels for a text, a pair of texts as a tuple, or many.

        >>> review = bertsmith.load("runs/reviews").classify("I liked it.")
        >>> review.label in review.probabilities
        True
        """
        return self._predict_task("classify", texts)

    def tag(self, texts: Any) -> Any:
        """Token classification, such as NER: a tag for every word of a text, or of many.

        A text is split at white space and punctuation; words may also be given as a tuple.

        >>> bertsmith.load("runs/ner").tag("the cat .").words
        ['the', 'cat', '.']
        """
        return self._predict_task("tag", texts)

    def answer(self, question: Any, context: Any = None) -> Any:
        """Extractive question answering: the span of the context that answers the question; empty if none does.

        Several questions about one context may be given as a list, and many pairs as `answer([(question, context)])`.

        >>> bertsmith.load("runs/squad").answer("who ?", "the cat sees the river").answer
        '...'
        """
        if isinstance(context, str):
            many = isinstance(question, list)
            return self._predict_task("answer", [(one, context) for one in question] if many else (question, context))
        return self._predict_task("answer", question if context is None else (question, context))

    def choose(self, beginning: Any, endings: Any = None) -> Any:
        """Multiple choice: the most probable ending of a beginning; many as `choose([(beginning, endings)])`.

        >>> bertsmith.load("runs/swag").choose("It rained,", ["so we stayed.", "so a cat."]).ending
        'so ...'
        """
        return self._predict_task("choose", beginning if endings is None else (beginning, endings))

    def predict(self, texts: Any) -> Any:
        """The prediction of a fine-tuned model for one input or many: label, number, tags, answer, choice or text.

        An input is a text, a pair of texts as a tuple, or a dictionary with the columns of the training data. It is
        read up to `prediction_length` tokens, and a prediction says how many of its `truncated_tokens` were not.

        >>> reviews = bertsmith.load("runs/reviews")
        >>> reviews.predict("I liked it.").label in reviews.labels
        True
        >>> len(reviews.predict([{"text": "I liked it."}, {"text": "I did not."}]))
        2
        """
        if not isinstance(self.objective, Task):
            remedy = f"Fine-tune it first: {finetune_command(self.path)}"
            remedy = "Take its vectors: embed" if self.embeds_sentences else remedy
            raise FolderError(self.path, "was not fine-tuned to predict anything", remedy)
        examples, one = inputs.as_examples(self.input_format(), texts)
        items = self.objective.preprocess(examples, self.tokenizer, self.prediction_length)
        found = predict(self.objective, examples, items, device=self.device, outputs=self.task_outputs)
        predictions = [Prediction(said) for said in found]
        for item in items:
            if item.truncated:
                predictions[item.example]["truncated_tokens"] = item.truncated
        return predictions[0] if one else predictions

    def predict_stream(self, examples: Iterator[Any], chunk_size: int = 1024) -> Iterator[dict[str, Any]]:
        """`predict` for an iterator of any length, `chunk_size` inputs at a time.

        >>> stream = bertsmith.load("runs/reviews").predict_stream(iter(["good", "bad", "bad"]), chunk_size=2)
        >>> len(list(stream))
        3
        """
        while some := list(islice(examples, chunk_size)):
            yield from self.predict(some)

    def _predict_task(self, task: str, texts: Any) -> Any:
        if not isinstance(self.objective, TASKS[task]):
            name = task_name(task)
            remedy = f"Fine-tune it first: {finetune_command(self.path, name)}"
            raise FolderError(self.path, f"was not fine-tuned for {name}", remedy)
        return self.predict(texts)
