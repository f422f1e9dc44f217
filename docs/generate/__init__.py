"""The reference pages, written from the program itself: `python docs/generate`, or `make docs`.

commands      verbs, from the command line
recipe_keys   keys of a recipe, from the dataclasses and the comments next to their fields
public_names  Python, from signatures and docstrings
source        what the source says: shared by the three

A test compares the committed pages with `pages()`.
"""

from generate import commands, public_names, recipe_keys


def pages() -> dict[str, str]:
    """Every generated page by its name in docs/reference."""
    return {"commands.md": commands.page(), "recipe.md": recipe_keys.page(), "python.md": public_names.page()}
