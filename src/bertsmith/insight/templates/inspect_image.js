// The script of the page about images. What the page shows is one `state`; every part says on which of its values it
// depends, and is drawn again when one of them changes.
{% include "elements.js" %}

{% for part in ("views", "bytes", "layers") %}
{% include "inspect/" ~ part ~ ".js" %}
{% endfor %}
{% include "inspect_image/state.js" %}
{% include "inspect/colours.js" %}
{% for part in ("weights", "picture", "bar", "heads", "attention", "special", "classes", "attributions", "reconstruction") %}
{% include "inspect_image/" ~ part ~ ".js" %}
{% endfor %}
start();
