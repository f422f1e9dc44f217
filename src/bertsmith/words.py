"""The composition root of word vectors: `vectors` makes them, `similar` and `analogy` ask them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertsmith import terminal
from bertsmith.config import build
from bertsmith.data.corpus import Corpus
from bertsmith.data.words import number
from bertsmith.errors import TextError
from bertsmith.models import word2vec, word_vectors
from bertsmith.models.word2vec import Word2Vec, Word2VecConfig
from bertsmith.models.word_vectors import WordVectors
from bertsmith.objectives.neighbours import NeighboursConfig
from bertsmith.recipe import settle
from bertsmith.train import machine
from bertsmith.train.clock import spoken
from bertsmith.train.display import Display
from bertsmith.train.lock import Lock
from bertsmith.train.vectors import VectorsConfig, VectorTrainer
from bertsmith.use.words import Method, Near, Words, pairs, questions

SAY = terminal.console()
MAY_CHANGE = frozenset({"out", "train.epochs", "train.budget", "train.device", "train.saves", "train.keep"})


@dataclass(frozen=True, kw_only=True)
class VectorsRecipe:
    """A run that makes word vectors, whole."""

    out: Path
    least: int = 5  # a word that is met less often has no vector
    lowercase: bool = True
    model: Word2VecConfig = field(default_factory=Word2VecConfig)
    neighbours: NeighboursConfig = field(default_factory=NeighboursConfig)
    train: VectorsConfig = field(default_factory=VectorsConfig)


def recipe(out: Path, **values: Any) -> VectorsRecipe:
    """The recipe of what was asked for on the command line; what is wrong with it is told in one line."""
    return build({"out": str(out), **values}, VectorsRecipe, "vectors")


def vectors(texts: Sequence[str], recipe: VectorsRecipe, *, as_text: bool = False, **reading: Any) -> dict[str, float]:
    """Learn a vector for each word of a text, from where the run stands, and leave a model folder."""
    with Lock(recipe.out):
        settle(recipe, MAY_CHANGE)
        corpus = Corpus(texts, **reading)
        with SAY.status("counting words"):
            sentences = (sentence for document in corpus.documents() for sentence in document.sentences)
            text = number(sentences, least=recipe.least, lowercase=recipe.lowercase)
        for line in corpus.news():
            SAY.print(f"text: {line}")
        SAY.print(f"{text.read:,} words, {len(text.words):,} of them different and met {recipe.least} times or more")
        device = machine.device(recipe.train.device)
        model = Word2Vec.new(recipe.model, len(text.words), recipe.train.seed, device)
        with Display("vectors") as display:
            trainer = VectorTrainer(model, text, recipe.neighbours, recipe.train, folder=recipe.out, display=display)
            figures = trainer.fit()
        word2vec.write(recipe.out / "model", model, text.words, text.counts)
        if as_text:
            made = WordVectors(text.words, model.inputs.cpu().numpy())
            word_vectors.write(recipe.out / "vectors.txt", made, "text")
        SAY.print(f"{len(text.words):,} vectors in {recipe.out / 'model'}, {spoken(figures['seconds'])}")
    return figures


def similar(model: Path, words: Sequence[str], *, judged: Path | None, top: int, as_json: bool) -> None:
    """The words that lie nearest to each word; and how well a file of judged pairs is agreed with."""
    _asked(words, judged, "bertsmith similar --pairs")
    opened = Words(word2vec.vectors(model))
    for word in words:
        _show({"word": word}, opened.neighbours(word, top), as_json)
    if judged is not None:
        found = opened.agreement(pairs(judged))
        line = f"correlation {found.correlation:.3f} over {found.found:,} of {found.pairs:,} pairs"
        _say({"file": str(judged), **asdict(found)}, line, as_json)


def analogy(model: Path, words: Sequence[str], *, asked: Path | None, method: Method, top: int, as_json: bool) -> None:
    """What is to the third word as the first is to the second; and how many questions of a file are answered."""
    if words and len(words) != 3:
        raise TextError("words", f"an analogy is asked with 3 words, not {len(words)}", "As in: king man woman")
    _asked(words, asked, "bertsmith analogy --questions")
    opened = Words(word2vec.vectors(model))
    if words:
        word, minus, plus = words
        found = opened.analogy(word, minus, plus, top, method)
        _show({"word": word, "minus": minus, "plus": plus}, found, as_json)
    if asked is not None:
        answered = opened.answered(questions(asked), method)
        facts = [f"{share:6.1%}  {group}" for group, share in answered.groups.items()]
        whole = f"of {answered.found:,} of {answered.questions:,} questions, those whose words are all known"
        facts.append(f"{answered.accuracy:6.1%}  {whole}")
        _say({"file": str(asked), **answered.plain()}, "\n".join(facts), as_json)


def _asked(words: Sequence[str], file: Path | None, command: str) -> None:
    if not words and file is None:
        raise TextError("words", "none are given", f"Give some, or a file to {command}")


def _show(said: dict[str, str], found: list[Near], as_json: bool) -> None:
    if not as_json:
        SAY.print(f"\n{' '.join(said.values())}", style="bold")
    lines = "\n".join(f"  {one.score:.3f}  {one.word}" for one in found)
    _say({**said, "found": [asdict(one) for one in found]}, lines, as_json)


def _say(record: dict[str, Any], line: str, as_json: bool) -> None:
    if as_json:
        print(terminal.json_line(record), flush=True)
    else:
        SAY.print(line)
