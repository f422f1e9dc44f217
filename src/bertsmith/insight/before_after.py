"""The section of the report on a model that was continued: its figures, neighbours and texts before and after."""

from collections.abc import Sequence

from markupsafe import Markup

from bertsmith.insight.page import render

HEADING = "Before and after"
LEAD = (
    "The model that was continued and the model that came of it, on the same texts. Bits per byte do not depend on the "
    "vocabulary: lower is better."
)
MASKED_NOTE = (
    "A seventh of the words of each passage is masked, whole words at a time, and the bits of the masked words are "
    "divided by their bytes. Such a pseudo-likelihood compares models; it is no code length."
)

HEAD_NOTE = (
    "The model had no masked LM head. Before means: with a new head that was fitted while the network was frozen. Its "
    "sentence embeddings have changed with the network: fine-tune them again before they are used."
)


def html(
    rows: Sequence[tuple[str, str, str]],
    neighbours: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (),
    notes: Sequence[str] = (),
) -> Markup:
    """Figures as rows of (name, before, after), then words with their neighbours before and after, then notes."""
    listed = [(word, ", ".join(before), ", ".join(after)) for word, before, after in neighbours]
    return render("before_after.html", rows=rows, neighbours=listed, notes=notes)
