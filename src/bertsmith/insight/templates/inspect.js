// The page's script, in the order in which its parts need each other. What the page shows is one `state`; every part
// says on which of its values it depends, and is drawn again when one of them changes.
{% include "elements.js" %}

{% for part in ("views", "state", "colours", "bytes", "figures", "heat", "lines", "bar", "overview", "weights", "attention", "layers", "predictions", "masked", "comparison", "words", "scatter", "map") %}
{% include "inspect/" ~ part ~ ".js" %}
{% endfor %}
start();
