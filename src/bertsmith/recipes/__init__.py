"""The recipes that come with bertsmith, one TOML file per member and size, found by name: `bert-base`, `tiny/bert`.

Those of `tiny/` train on a laptop in minutes.
"""

from pathlib import Path

from bertsmith.errors import RecipeError, suggest

FOLDER = Path(__file__).resolve().parent


def names() -> list[str]:
    """The names of all recipes in the package, those of `tiny/` last."""
    found = [path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.toml")]
    return sorted(found, key=lambda name: ("/" in name, name))


def find(recipe: str | Path) -> Path:
    """The TOML file of a recipe: a path as it is, else the recipe of this name in the package."""
    if not isinstance(recipe, str | Path):
        raise RecipeError("recipe", f"is {recipe!r}", "Give a name, as bert-base, or a path to a TOML file")
    path = Path(recipe)
    if path.is_file():
        return path
    name = path.as_posix()
    if name in names():
        return FOLDER / f"{name}.toml"
    if path.is_dir():
        raise RecipeError(path, "is a folder", "Name a recipe, as bert-base, or a file ending in .toml")
    # A path from the time when recipes lay beside the package still says which recipe is meant.
    remedy = suggest(name.removesuffix(".toml").removeprefix("recipes/"), names())
    if remedy.startswith("Known"):
        remedy = "`bertsmith list` shows those that come with it"
    raise RecipeError(recipe, "there is no such recipe", remedy)
