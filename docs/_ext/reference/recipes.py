"""A page for each packaged recipe, from its YAML file."""

from ablations.study.naming import packaged_names
from ablations.study.reading import find_file, read_recipe
from ablations.study.recipe import Recipe
from reference.markup import code, literal, prose, shell, table, toctree
from reference.studies import settings
from results.store.schemas.metrics import margin_text, metric_by_name
from results.store.schemas.stated import Expected

ACCURACY = metric_by_name("test_accuracy")


def pages() -> dict[str, str]:
    recipes = [read_recipe(name) for name in packaged_names("recipes")]
    return {"index.md": overview(recipes), **{f"{recipe.name}.md": page(recipe) for recipe in recipes}}


def overview(recipes: list[Recipe]) -> str:
    rows = [[f"[`{recipe.name}`]({recipe.name}.md)", prose(recipe.description)] for recipe in recipes]
    about = "A recipe says what a study runs on: data, size, schedule and seeds. `--recipe NAME` chooses one.\n"
    listed = [table(["recipe", "setting"], rows), toctree(recipe.name for recipe in recipes)]
    return "\n".join(["# Recipes\n", about, *listed])


def page(recipe: Recipe) -> str:
    arms = [[code(name), settings(changes) or "as above"] for name, changes in recipe.arms.items()]
    return "\n".join(
        [
            f"# {recipe.name}\n",
            prose(recipe.description) + "\n",
            shell([f"ablate run position-embedding --recipe {recipe.name}"]),
            "## Settings\n",
            table(["setting", "value"], ([f"{{setting}}`{key}`", code(value)] for key, value in recipe.config.items())),
            "## Axes and arms\n",
            "Studies that say `axis` take these values:\n",
            table(["axis", "values"], ([code(key), ", ".join(map(code, axis))] for key, axis in recipe.axes.items())),
            "Studies that name an arm of the recipe get these settings:\n",
            table(["arm", "settings"], arms),
            "## What is known of it\n",
            facts(recipe),
            "## The file\n",
            literal(find_file("recipes", recipe.name)),
        ]
    )


def facts(recipe: Recipe) -> str:
    margin = f" Margin: {margin_text(recipe.margin, ACCURACY)}." if recipe.margin else ""
    lines = [f"Seeds: {recipe.seeds}.{margin}\n"]
    for kind, took in recipe.cost.items():
        lines.append(f"- A trial takes {took.seconds:,g} s on {prose(took.device)} ({kind}; {prose(took.origin)}).")
    lines += [f"- {reached(expected)}" for expected in recipe.expected]
    lines += [f"- {prose(caveat)}" for caveat in recipe.caveats]
    return "\n".join(lines) + "\n"


def reached(expected: Expected) -> str:
    seeds = f", n = {expected.n}" if expected.n else ""
    changed = f" with {settings(expected.settings)}" if expected.settings else ""
    return f"Test accuracy {100 * expected.mean:.2f}%{changed}{seeds} ({prose(expected.origin)})."
