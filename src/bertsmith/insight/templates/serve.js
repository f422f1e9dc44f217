// The script of the page for people, in the order in which its parts need each other. A verb is one entry of `VERBS`:
// which models can do it, what it asks, and how its answer is drawn.
{% include "elements.js" %}

{% for part in ("server", "examples", "answers", "texts", "images", "verbs", "panel", "models") %}
{% include "serve/" ~ part ~ ".js" %}

{% endfor %}
start();
