"""A text that a model has read, with what an inspection says of it."""

from dataclasses import dataclass

from bertsmith.insight.inspection.attention_maps import AttentionMaps
from bertsmith.insight.inspection.attributions import Attribution
from bertsmith.insight.inspection.inputs import Token
from bertsmith.insight.inspection.neighbours import Neighbours
from bertsmith.insight.inspection.reading import Reading


@dataclass(frozen=True, repr=False)
class InspectedText:
    """One text through one model: what the model computed, which tokens decided, and what is near them.

    >>> inspected = model.inspect("the cat sees the [MASK] .").readings[0]
    >>> [maps.weights.shape[:2] for maps in inspected.attentions]
    [(2, 4)]
    """

    model: int
    text: int
    reading: Reading
    attributions: list[Attribution]
    neighbours: Neighbours | None

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens that the model reads.

        >>> [token.shown for token in model.inspect("the cat").readings[0].tokens]
        ['[CLS]', 'the', 'cat', '[SEP]']
        """
        return self.reading.tokens

    @property
    def attentions(self) -> tuple[AttentionMaps, ...]:
        """The attention weights by kind of attention, each [layers, heads, rows, columns].

        >>> model.inspect("the cat").readings[0].attentions[0].weights.sum(-1).round(3).min().item()
        1.0
        """
        return self.reading.attentions

    def __repr__(self) -> str:
        shown = " ".join(token.shown for token in self.tokens[:12])
        return f"InspectedText({shown!r}, {', '.join(map(repr, self.attributions)) or 'no attributions'})"
