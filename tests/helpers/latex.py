"""A strict reader of the LaTeX that tables are written in: an error where TeX would stop or print something else."""

import re

TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|[{}$&#%_^~]|\s+|[^\\{}$&#%_^~\s]+")
# name: number of mandatory arguments, of those that booktabs and the kernel define
COMMANDS = {
    r"\multicolumn": 3,
    **dict.fromkeys((r"\begin", r"\end", r"\caption", r"\label", r"\cmidrule", r"\textsuperscript"), 1),
    **dict.fromkeys((r"\toprule", r"\midrule", r"\bottomrule", r"\centering", r"\raggedright"), 0),
    **dict.fromkeys((r"\par", r"\smallskip", r"\footnotesize"), 0),
    **dict.fromkeys((r"\textbackslash", r"\textasciitilde", r"\textasciicircum", r"\textless", r"\textgreater"), 1),
    **dict.fromkeys((r"\textbar", r"\dag"), 1),  # written with {}: nothing after it is taken for a part of its name
}
ESCAPED = {rf"\{sign}" for sign in "&%$#_{}"} | {r"\\"}
IN_MATH = {r"\pm", r"\times", "-"}
RULES = r"\\(?:toprule|midrule|bottomrule)|\\cmidrule\(lr\)\{\d+-\d+\}"


def check(text: str) -> list[list[str]]:
    """Return the cells of every row of the tabular; a `\\multicolumn` counts as one cell.

    Raises AssertionError for an unknown command, a missing argument, a brace, `$` or environment that is not closed, a
    special character that is not escaped, and a row with more or fewer cells than columns.
    """
    assert text.isascii() or not set(text) & {"−", "±", "×", "–", "†"}, "a sign that pdflatex may not know"
    check_tokens(TOKEN.findall(text))
    assert "".join(TOKEN.findall(text)) == text
    columns, body = re.search(r"\\begin\{tabular\}\{([lrc]+)\}(.*)\\end\{tabular\}", text, re.DOTALL).groups()
    rows = [row for row in re.sub(RULES, "", body).split(r"\\") if row.strip()]
    cells = [re.split(r"(?<!\\)&", row) for row in rows]
    for row in cells:
        spans = [re.match(r"\s*\\multicolumn\{(\d+)\}", cell) for cell in row]
        assert sum(int(found[1]) if found else 1 for found in spans) == len(columns)
    return [[cell.strip() for cell in row] for row in cells]


def check_tokens(tokens: list[str]) -> None:
    open_braces, math, environments = 0, False, []
    for i, token in enumerate(tokens):
        if math and token != "$":
            assert token in IN_MATH, f"{token} in mathematics"
        elif token.startswith("\\"):
            assert token in ESCAPED or token in COMMANDS, f"unknown command {token}"
            if COMMANDS.get(token, 0) and token != r"\cmidrule":
                assert tokens[i + 1] == "{", f"{token} without its argument"
            if token == r"\begin":
                environments.append(tokens[i + 2])
            if token == r"\end":
                assert environments.pop() == tokens[i + 2], f"\\end{{{tokens[i + 2]}}}"
        assert token not in ("#", "%", "_", "^", "~"), f"{token} is not escaped"
        open_braces += (token == "{") - (token == "}")
        assert open_braces >= 0
        math ^= token == "$"
    assert open_braces == 0
    assert not math
    assert not environments
