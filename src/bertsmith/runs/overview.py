"""What a person wants to know of a new model: its text, its accuracy beside plain yardsticks, its uses and limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bertsmith import files
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import FolderError
from bertsmith.insight.model_card import Use
from bertsmith.insight.overview import Overview
from bertsmith.models.networks import Architecture
from bertsmith.objectives.base import Pretraining
from bertsmith.objectives.replaced import ReplacedTokenDetection
from bertsmith.recipe import Recipe
from bertsmith.runs.next_commands import next_commands
from bertsmith.runs.verdict import Level, main_term
from bertsmith.runs.yardsticks import Yardsticks
from bertsmith.terminal import count_of
from bertsmith.text import language
from bertsmith.text.language import Writing
from bertsmith.text.tokenizer import Tokenizer

LANGUAGE_TOKENS = 5_000  # of the validation text, by which its language is detected
USES: dict[Architecture, Use] = {
    "encoder": "fill_mask",
    "decoder": "causal_lm",
    "recurrent": "recurrent_lm",
    "encoder_decoder": "text_to_text",
    "elmo": "features",
}
USEFUL: dict[Use, str] = {  # what a model of each kind is for, once it has learnt
    "fill_mask": "fine-tuning on texts of this kind: classes, tags, answers or similarity, with labels of your own",
    "discriminator": "fine-tuning on texts of this kind: classes, tags, answers or similarity, with labels of your own",
    "causal_lm": "continuing texts of this kind, and for telling likely sentences from unlikely ones",
    "recurrent_lm": "continuing texts of this kind, and for telling likely sentences from unlikely ones",
    "text_to_text": "fine-tuning from text to text, such as translation or summaries, with pairs of your own",
    "features": "tagging and classifying texts of this kind with its vectors as features",
}
NOT_FACTS = "Conversation and questions of fact: it knows which words go together in its text, and no more."


def use_of(objective: Pretraining) -> Use:
    """What a pretrained model is for as it is."""
    if isinstance(objective, ReplacedTokenDetection) and objective.config.discriminator_loss != "none":
        return "discriminator"
    return USES[objective.needs]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model with its text and its figures, as the overview needs them."""

    recipe: Recipe
    objective: Pretraining
    tokenizer: Tokenizer
    train: Shards
    valid: Shards
    metrics: Mapping[str, float]
    yardsticks: Yardsticks
    level: Level
    epochs: float  # how often it has seen the training text
    before: float | None = None  # accuracy of the model that was continued
    partial: bool = False  # there was no time to read the whole text
    more_time: str = ""
    examples: Sequence[str] = ()  # texts with a mask, or prompts

    @property
    def writing(self) -> Writing:
        """The script and language of the text."""
        ends = self.valid.sentence_ends
        ends = ends[: max(1, int(np.searchsorted(ends, LANGUAGE_TOKENS)))]
        starts = np.concatenate([[0], ends[:-1]])
        return language.detect_writing([self.tokenizer.decode(self.valid.gather(starts, ends - starts).tolist())])


def overview(trained: Trained) -> Overview:
    """The overview of a trained model."""
    writing, use = trained.writing, use_of(trained.objective)
    return Overview(
        read=_read(trained, writing),
        guesses=_guesses(trained, writing, use),
        accuracies=_accuracies(trained, writing, use),
        good_for=[_good_for(trained.level, use)],
        limits=_limits(trained, writing, use),
        more_time=trained.more_time,
        commands=next_commands(trained.recipe.out, use, trained.examples),
    )


def _read(trained: Trained, writing: Writing) -> str:
    kind = "source code" if writing.code else writing.language
    of_kind = f" of {kind}" if kind else f" in {writing.script} script" if writing.script else ""
    times = trained.epochs
    seen = "once" if 0.95 <= times < 1.05 else f"{times:.1f} times" if times < 10 else f"{times:.0f} times"
    seen = f"of which it has seen {times:.0%}" if times < 0.95 else f"seen {seen}"
    files_read = _files(trained.recipe)
    part = " It is the beginning of your text, for which alone there was time." if trained.partial else ""
    words, held_out = f"{trained.train.words:,} {writing.units}", f"{trained.valid.words:,}"
    return f"{words}{of_kind}{files_read}, {seen}; {held_out} others were held out, by which it is judged.{part}"


def _files(recipe: Recipe) -> str:
    """How many files the text was prepared from, or that it was cleaned: cleaned text has files of its own."""
    if (recipe.out / "cleaned").is_dir():
        return " after cleaning"
    try:
        count = len(files.read_json(recipe.data.local / "summary.json")["inputs"]["files"])
    except (FolderError, LookupError, TypeError):
        return ""
    return f" in {count_of(count, 'file')}"


def _of_100(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.01 else "fewer than one"


def _unit(trained: Trained, writing: Writing) -> str:
    """What one target is: a word, or a part of one."""
    if not writing.spaced:
        return "characters"
    return "words" if trained.yardsticks.word_share == 1 else "words and parts of words"


def _guesses(trained: Trained, writing: Writing, use: Use) -> list[str]:
    metrics, plain, unit = trained.metrics, trained.yardsticks, _unit(trained, writing)
    accuracy = _of_100(metrics[f"{main_term(metrics)}_accuracy"])
    place = "hidden" if use in ("fill_mask", "discriminator", "text_to_text") else "next"
    who = "its generator" if use == "discriminator" else "it"
    others = [f"guessing always the commonest one gets {_of_100(plain.unigram_accuracy)}"]
    if plain.bigram_accuracy is not None:
        others.append(f"what most often follows the one before {_of_100(plain.bigram_accuracy)}")
    if trained.before is not None:
        others.append(f"the model that was continued {_of_100(trained.before)}")
    sentence = f"Of 100 {place} {unit} {who} gets {accuracy} right; {', '.join(others)}."
    if "replaced_found" not in metrics:
        return [sentence]
    return [f"Of 100 tokens that its generator has replaced it finds {_of_100(metrics['replaced_found'])}.", sentence]


def _accuracies(trained: Trained, writing: Writing, use: Use) -> list[tuple[str, float]]:
    metrics, plain = trained.metrics, trained.yardsticks
    unit = "character" if not writing.spaced else "word"
    found = [(f"always the commonest {unit}", plain.unigram_accuracy)]
    if plain.bigram_accuracy is not None:
        found.append(("what most often follows the one before", plain.bigram_accuracy))
    if trained.before is not None:
        found.append(("the model that was continued", trained.before))
    return [
        *found,
        ("its generator" if use == "discriminator" else "this model", metrics[f"{main_term(metrics)}_accuracy"]),
    ]


def _good_for(level: Level, use: Use) -> str:
    more = "More text or more time make it better."
    match level:
        case Level.NOTHING | Level.LITTLE:
            return "Not yet useful, except to try the commands. Give it more text or more time."
        case Level.WEAK:
            return f"A weak start for {USEFUL[use]}: a method that counts words may do as well. {more}"
        case Level.FAIR:
            return f"Good enough as a start for {USEFUL[use]}. {more}"
        case Level.GOOD:
            return f"A good start for {USEFUL[use]}."


def _limits(trained: Trained, writing: Writing, use: Use) -> list[str]:
    shape, found = trained.objective.trunk.config, [NOT_FACTS]
    length = getattr(shape, "max_length", 0)
    if length and use not in ("recurrent_lm", "features"):
        read = length if trained.recipe.start else min(length, trained.recipe.data.max_length)
        words = max(1, round(read * trained.train.words / max(trained.train.tokens, 1)))
        what = "they are cut, or read in parts"
        if read < length:
            what = f"it was trained on none, though it takes up to {length:,}"
        found.append(f"Texts of more than {read:,} tokens, about {words:,} {writing.units}: {what}.")
    kind = "source code" if writing.code else writing.language
    if (kind or writing.script) and trained.recipe.start is None:  # what a continued model knows is not known here
        found.append(f"Other languages: it has read {kind or f'{writing.script} script'} only.")
    if trained.tokenizer.lowercase:
        accents = " and accents" if trained.tokenizer.strips_accents else ""
        found.append(f"Texts in which capitals{accents} matter: it does not see them.")
    return found
