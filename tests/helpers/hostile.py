"""Text that must never become a command, an option or a path. `CANARY` stands for a file that none of it may make."""

CANARY = "CANARY"
TOUCH = "touch CANARY"

SEPARATORS = [
    *("; ", "& ", "&& ", "|| ", "| ", " #\n", "\\\n", "\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"),
]
COMMANDS = [
    *(f"x{separator}{TOUCH}" for separator in SEPARATORS),
    *(f"{separator}{TOUCH}" for separator in SEPARATORS[:5]),
    *(f"x{quote}{command}{quote}" for quote in "'\"" for command in (f"; {TOUCH}; ", f" $({TOUCH}) ")),
    *(f"{quote}\n{TOUCH}\n{quote}" for quote in "'\""),
    *(f"$({TOUCH})", f"`{TOUCH}`", f"$((1+$({TOUCH})))", f"<({TOUCH})", f">({TOUCH})", f"x\\'; {TOUCH}; \\'"),
    *(f"\n{TOUCH}\n#", f"() {{ :;}}; {TOUCH}", f"eval {TOUCH}", "${IFS}touch${IFS}CANARY", "{touch,CANARY}"),
    *("> CANARY", ">>CANARY", "2>CANARY", "~+/CANARY"),
]
OPTIONS = [
    *("--wrap=touch CANARY", "-o CANARY", "--output=CANARY", "main --output=CANARY", "main\n#SBATCH --output=CANARY"),
    *(
        "main\n#SBATCH --wrap='touch CANARY'",
        "main' --output='CANARY",
        'main" --output="CANARY',
        "-",
        "--",
        "--help",
        "=",
    ),
]
PATHS = [
    *("..", "../CANARY", "../../CANARY", "x/../../CANARY", "/../CANARY"),
    *("%j", "%u", "a%jb", "100%", "%(CANARY)s", "\\\\x"),
]
CHARACTERS = [
    *("", " ", "\t", "\0", "\x1b[2J", "\x07", "\x7f", "\x1e\x1f", "\u202e", "\u200b", "\ufeff", "é", "名", "\ud800"),
    *("x" * 100_000, "*", "?", "[", "!", "#", "~", "$HOME"),
]
TEXTS = [*COMMANDS, *OPTIONS, *PATHS, *CHARACTERS]
