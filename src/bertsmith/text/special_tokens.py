"""Special tokens: their names in each kind of tokenizer, their roles, and the templates that put them around texts."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tokenizers import AddedToken, Encoding, Tokenizer, processors

Kind = Literal["words", "wordpiece", "bpe", "unigram", "t5"]

END_OF_TEXT = "<|endoftext|>"  # the only special token of GPT-2, between its texts

# The id of a special token is its index here. The names are those of BERT, RoBERTa, ALBERT and T5; of whole words those
# of GPT-2, and <unk> as in corpora that have it for rare words.
SPECIAL_TOKENS: dict[Kind, tuple[str, ...]] = {
    "words": ("<unk>", END_OF_TEXT),
    "wordpiece": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "bpe": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    "unigram": ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
    "t5": ("<pad>", "</s>", "<unk>"),
}
# A sentinel stands for a span that was masked; the first is the last token. Raffel et al. 2020, section 3.1.4.
SENTINELS = tuple(f"<extra_id_{number}>" for number in reversed(range(100)))
TRAILING_SPECIALS: dict[Kind, tuple[str, ...]] = {kind: SENTINELS if kind == "t5" else () for kind in SPECIAL_TOKENS}

# The templates of one text and of two. RoBERTa has two separators between texts.
BERT_TEMPLATES = ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
ROBERTA_TEMPLATES = ("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:1 </s>:1")
# As published it does not mark its texts; our own tokenizers do, since they may be of networks with two segments.
PUBLISHED_ROBERTA_TEMPLATES = ("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")
TEMPLATES: dict[Kind, tuple[str, str]] = {
    "words": (f"{END_OF_TEXT}:0 $A:0", f"{END_OF_TEXT}:0 $A:0 {END_OF_TEXT}:0 $B:1"),
    "wordpiece": BERT_TEMPLATES,
    "bpe": ROBERTA_TEMPLATES,
    "unigram": BERT_TEMPLATES,
    "t5": ("$A:0 </s>:0", "$A:0 </s>:0 $B:1 </s>:1"),
}

# By role: the key in tokenizer_config.json, and the usual names.
ROLES = {
    "padding": ("pad_token", "[PAD]", "<pad>", END_OF_TEXT),
    "unknown": ("unk_token", "[UNK]", "<unk>"),
    "start": ("cls_token", "[CLS]", "<s>", END_OF_TEXT),
    "stop": ("sep_token", "[SEP]", "</s>", END_OF_TEXT),
    "mask": ("mask_token", "[MASK]", "<mask>"),
}
BOS_EOS_KEYS = {"start": "bos_token", "stop": "eos_token"}  # the keys of language models for the same roles


class Template(NamedTuple):
    """The ids of the special tokens before a text, between two texts, and after the last; the second text's segment."""

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    segment: int = 1  # of the second text: BERT marks it with 1, RoBERTa and XLM-RoBERTa do not, and it has 0

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Template":
        """The template of the library's tokenizer, found by encoding a text and a pair."""
        pair = tokenizer.encode("a", "a")
        sides = pair.sequence_ids
        if not {0, 1} <= set(sides):  # the vocabulary has no token for "a", and none for the unknown
            return cls()
        first, last = sides.index(0), len(sides) - 1 - sides[::-1].index(1)
        between = [token for token, side in zip(pair.ids[first:last], sides[first:last], strict=True) if side is None]
        single = tokenizer.encode("a")
        sides = single.sequence_ids
        after = single.ids[len(sides) - sides[::-1].index(0) :]
        return cls(tuple(single.ids[: sides.index(0)]), tuple(between), tuple(after), min(1, pair.type_ids[last]))


def task_templates(start: str, stop: str, tokenizer: Tokenizer) -> tuple[str, str]:
    """The templates of one text and of two with these tokens, for a tokenizer that leaves out the last."""
    present = Template.of(tokenizer)
    roberta = stop == "</s>"  # which has two separators, and does not mark its texts
    separators = f"{stop}:0 {stop}:0" if roberta else f"{stop}:0"
    second = 0 if roberta and not present.between else present.segment
    return f"{start}:0 $A:0 {stop}:0", f"{start}:0 $A:0 {separators} $B:{second} {stop}:{second}"


def prompt_templates(start: str, stop: str, tokenizer: Tokenizer) -> tuple[str, str]:
    """The same without a token after a text, for a tokenizer that has one."""
    return f"{start}:0 $A:0", f"{start}:0 $A:0 {stop}:0 $B:{Template.of(tokenizer).segment}"


def pair_segments(pair: Encoding, second: int | None) -> list[int]:
    """The segments of an encoded pair: those of its template, or the given one from the second text on."""
    if second is None or 1 not in pair.sequence_ids:
        return list(pair.type_ids)
    begin = pair.sequence_ids.index(1)
    return [0] * begin + [second] * (len(pair) - begin)


def find_role(tokenizer: Tokenizer, role: str, name: str | None) -> int | None:
    """The id of the special token with a role: by the given name, or by one of the usual names."""
    ids = (tokenizer.token_to_id(candidate) for candidate in (name or "", *ROLES[role][1:]))
    return next((number for number in ids if number is not None), None)


def special_tokens(kind: Kind) -> list[AddedToken]:
    """The special tokens of a kind, as the library wants them."""
    # The space before RoBERTa's mask is part of it, since there a word's token begins with its space.
    names = SPECIAL_TOKENS[kind] + TRAILING_SPECIALS[kind]
    return [AddedToken(name, lstrip=name == "<mask>", special=True) for name in names]


def with_special_tokens(tokenizer: Tokenizer, kind: Kind) -> Tokenizer:
    """The tokenizer with its special tokens marked, and put around one text or two."""
    tokenizer.add_special_tokens(special_tokens(kind))
    set_template(tokenizer, *TEMPLATES[kind], SPECIAL_TOKENS[kind])
    return tokenizer


def set_template(tokenizer: Tokenizer, single: str, pair: str, names: Sequence[str]) -> None:
    """Set the templates of one text and of two, in the library's notation."""
    used = {word.rpartition(":")[0] for word in pair.split()}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in dict.fromkeys(names) if name in used],
    )
