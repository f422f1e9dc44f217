"""Translation: a text for each text, by a model that has learnt to write, the likeliest wholes by beam search."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertsmith.data.examples import Example
from bertsmith.data.rows import passes
from bertsmith.errors import TextError
from bertsmith.models.decoder import Decoder, continued
from bertsmith.models.search import SearchConfig
from bertsmith.tasks.write import Write
from bertsmith.text.tokenizer import Tokenizer

TOGETHER = {"cpu": 1_024, "cuda": 32_768}  # tokens that are read at once, of texts of nearly one length


@dataclass(frozen=True)
class Translated:
    """A text, and what it was made into."""

    text: str
    translation: str
    unread: int = 0  # tokens of the text, which is longer than the model reads

    def plain(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self)


def translate(
    task: Write, decoder: Decoder, tokenizer: Tokenizer, texts: Sequence[str], config: SearchConfig
) -> list[Translated]:
    """What is written about each text, in order. Nothing is written about nothing.

    How long a translation may be depends on no other text, and so neighbours do not change it.
    """
    if isinstance(texts, str):
        raise TextError("texts", "is one text, not several", "Put it into a list")
    spoken = [number for number, text in enumerate(texts) if text.strip()]
    examples = [Example(place=f"text {number + 1}", texts=(texts[number].strip(),)) for number in spoken]
    items = task.items(examples, tokenizer, task.trunk.config.length)
    rows = [item.rows[0].ids.tolist() for item in items]
    found = [Translated(text, "") for text in texts]
    for some in passes([len(row) for row in rows], TOGETHER[decoder.device.type]):
        written = continued(decoder, [rows[place] for place in some], config, [tokenizer.stop])
        for place, (best, *_) in zip(some, written, strict=True):
            number = spoken[place]
            found[number] = Translated(texts[number], tokenizer.decode(best).strip(), items[place].cut)
    return found
