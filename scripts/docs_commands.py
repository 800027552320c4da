# SPDX-License-Identifier: MIT
"""Commands of the tool in documents: does each name a verb and options that the tool has?

What the tool has is in docs/reference/verbs.json. Read are blocks of code and words in backticks. Options of a command that a verb runs
are its own, so reading ends at `--`, and for a verb that runs its first word, there.
"""
import json
import re

DEFINITION = "docs/reference/verbs.json"
BEGIN = re.compile(r"(?:^|[\s;|&(])(?:[\w.$/]*/)?quarry +(?=[a-z-])")
# Where nothing but variables stand before it, it is meant as a verb. The debugger has commands of that name, too, without options.
AT_ONCE = re.compile(r"\s*(?:\$ |sudo |[A-Z_]+=\S+ )*(?:[\w.$/]*/)?quarry +")
WORD = re.compile(r"'[^']*'|\"[^\"]*\"|\S+")
ENDS = ("--", "|", "||", "&&", "&", ";", ">", "2>", ">>", "#", "...;")
# Verbs whose first word that is no option begins a command.
RUNS = ("run", "record", "compare")


class Verb:
    """The options of a verb, each with whether the next word is its value."""

    def __init__(self, arguments, runs):
        self.runs, self.options = runs, {"--help": False, "-h": False, "--version": False, "-V": False}
        for one in arguments:
            takes = bool(one["takes"]) and not one["optional"]
            names = [f"--{name}" for name in (one["long"], *one["aliases"]) if name] + [f"-{one['short']}"] * bool(one["short"])
            self.options.update(dict.fromkeys(names, takes))


def verbs(root):
    """Name -> verb, or nothing where the tool has no definition."""
    if not (root / DEFINITION).exists():
        return {}
    known = json.loads((root / DEFINITION).read_text())
    made = {}
    for verb in known["verbs"]:
        name = verb["name"].removeprefix("quarry ")
        made[name] = Verb(verb["arguments"] + known["everywhere"], name in RUNS)
    return made


def code_of(text):
    """(line, text) of each piece of code; lines that end in a backslash are one with the next."""
    fenced = False
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            joined, end = line, number
            while joined.endswith("\\") and end < len(lines):
                joined, end = joined[:-1] + " " + lines[end].lstrip(), end + 1
            yield number, joined
        else:
            yield from ((number, span) for span in re.findall(r"`([^`]+)`", line))


def faults_of(words, verb):
    """The options among these words that the verb does not have."""
    value = False
    for word in words:
        if word in ENDS:
            return
        bare = word.strip("[]().,;:`")
        if value:
            value = False
        elif bare.startswith("-") and bare != "-" and not bare[1].isdigit():
            for part in bare.split("|"):
                name = re.match(r"--[\w-]+|-\w|", part).group()
                if name and name not in verb.options:
                    yield name
                value = verb.options.get(name, False) and part == name
        elif verb.runs and not word.startswith("["):
            return
        if word.endswith(";"):
            return


def faults(text, known):
    """(line, words) for each command that the tool does not understand."""
    for number, code in code_of(text) if known else ():
        code = re.sub(r"\$\([^()]*\)", "X", code)
        code = re.sub(r"(^|\s)#\s.*|(?<=\S) {3,}.*", "", code)  # a remark, also beside a command of the help
        for found in BEGIN.finditer(code):
            words = WORD.findall(code[found.end():])
            two = " ".join(words[:2])
            name = two if two in known else words[0] if words else ""
            if name in known:
                for option in faults_of(words[len(name.split()):], known[name]):
                    yield number, f"`quarry {name}` has no option {option}"
            elif AT_ONCE.fullmatch(code[:found.end()]) and re.fullmatch(r"[a-z]+", name) and re.search(r" -", code[found.end():]):
                yield number, f"there is no verb `quarry {name}`"


def self_test(root):
    known = verbs(root)
    for text in ("    quarry run --stats ./prog --any -x", "`quarry info -n 3 --top 4 x`", "```\nquarry profile --tree=bottom-up -g fp -- p --no\n```",
                 "`quarry run [--] CMD`", "`quarry VERB --flag`", "the quarry heap --flag", "    x | quarry map - --by file; ls --any",
                 "`quarry bench suite --pin DIR`", "    quarry --version", "    (gdb) quarry pool x", "    quarry info x     but not --any", "    quarry info $(x --any)",
                 "`quarry info --sysroot DIR`", "    quarry map -p 1 \\\n    --check  # --any"):
        assert list(faults(text, known)) == [], (text, list(faults(text, known)))
    for text in ("    quarry run --statz ./prog", "`quarry info --pin x`", "```\nQUARRY_CONF=a:b build/bin/quarry profile -z\n```", "    quarry map -p 1 \\\n    --any",
                 "`quarry bench --pin`", "    quarry explode --now", "`quarry run [--no] CMD`", "    x && quarry top --once|--no", "`quarry run --conf a:1 --no p`"):
        assert len(list(faults(text, known))) == 1, (text, list(faults(text, known)))
