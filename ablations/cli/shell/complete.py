"""Complete names of studies and recipes when Tab is pressed."""


def studies(incomplete: str) -> list[str]:
    return matching("studies", incomplete)


def recipes(incomplete: str) -> list[str]:
    return matching("recipes", incomplete)


def matching(kind: str, incomplete: str) -> list[str]:
    from ablations.study.reading import packaged  # late: pydantic

    return [name for name in packaged(kind) if name.startswith(incomplete)]
