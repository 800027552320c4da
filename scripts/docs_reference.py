# SPDX-License-Identifier: MIT
"""The pages of docs/reference, one for each verb, of the definition that `quarry man --format json` prints.

The definition is committed, so that the pages can be checked without a built tool. A test of the tool compares it with the command line.
"""
import json
import re

DEFINITION = "docs/reference/verbs.json"
FOLDER = "docs/reference"
CHAPTERS = "examples/tour"
MADE = "<!-- Made by scripts/generate_docs.py of verbs.json: change the help of the verb instead. -->\n\n"


def definition(root):
    return json.loads((root / DEFINITION).read_text())


def page_name(verb):
    return verb["name"].replace(" ", "-") + ".md"


def cell(text):
    """Text for a cell of a table, on one line."""
    text = re.sub(r"\s*\n\s*", " ", text.strip())
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def written(argument):
    """An argument as one types it."""
    takes = " ".join(argument["takes"]).replace("|", "\\|")
    if not argument["long"] and not argument["short"]:
        return f"`{takes}`"
    value = f" {takes}" if takes else ""
    if argument["optional"]:
        value = f"[={takes}]" if argument["equals"] else f" [{takes}]"
    names = [f"-{argument['short']}" if argument["short"] else "", *(f"--{name}" for name in (argument["long"], *argument["aliases"]) if name)]
    return ", ".join(f"`{name}{value}`" for name in names if name)


def meaning(argument):
    text = cell(argument["help"])
    if not argument["values"]:
        return text
    text += "." if text and not text.endswith((".", ":", ";")) else ""
    if any(value["help"] for value in argument["values"]):
        return text + "".join(f" `{value['name']}`" + (f": {cell(value['help'])}." if value["help"] else ".") for value in argument["values"])
    return text + " One of " + ", ".join(f"`{value['name']}`" for value in argument["values"])


def table(arguments):
    rows = ["| argument | default | what it does |", "|---|---|---|"]
    for argument in arguments:
        default = f"`{argument['default']}`" if argument["default"] else ""
        rows.append(f"| {written(argument)} | {default} | {meaning(argument)} |")
    return "\n".join(rows)


def behind(text):
    """Paragraphs behind the options: the words before a first colon are a heading, lines that are indented are code."""
    parts = []
    for paragraph in filter(None, (part.strip("\n") for part in text.split("\n\n"))):
        heading, colon, body = paragraph.partition(":")
        if not colon or "\n" in heading or len(heading) > 30:
            heading, body = "Notes", paragraph
        body = body.strip("\n")
        code = all(line.startswith("  ") for line in body.splitlines())
        body = body if code else re.sub(r"\s+", " ", body).strip()
        if code:
            shown = f"```text\n{body}\n```"
        elif heading == "Exit code":
            shown = "\n".join(f"- {cell(one)}" for one in body.split("; "))
        else:
            shown = cell(body)
        parts.append(f"## {heading}\n\n{shown}\n")
    return parts


def page(verb):
    first, _, rest = verb["about"].partition("\n\n")
    text = [f"# {verb['name']}\n", MADE.strip() + "\n", first.strip() + ".\n"]
    text += [cell(paragraph) + "\n" for paragraph in rest.split("\n\n") if paragraph.strip()]
    text.append(f"```text\n{verb['usage']}\n```\n")
    headings = list(dict.fromkeys(argument["heading"] for argument in verb["arguments"]))
    for heading in headings:
        title = heading or ("Arguments" if len(headings) == 1 else "Arguments and options")
        text.append(f"## {title}\n\n" + table([one for one in verb["arguments"] if one["heading"] == heading]) + "\n")
    text += behind(verb["after"])
    text.append("Every verb has [these options](README.md), too. [The command line tool](../cli.md) explains reports and JSON.\n")
    return "\n".join(text)


def verbs(root):
    """The part of the index that lists the verbs."""
    rows = ["| verb | what it does |", "|---|---|"]
    for verb in definition(root)["verbs"]:
        rows.append(f"| [{verb['name']}]({page_name(verb)}) | {cell(verb['about'].partition(chr(10) * 2)[0])} |")
    return "\n".join(rows)


def everywhere(root):
    return table(definition(root)["everywhere"])


def formats(root):
    """What a file can be, the endings that say it, and the verbs that make it."""
    known = definition(root)
    makers = {}
    for verb in known["verbs"]:
        for argument in verb["arguments"]:
            for value in argument["values"] if argument["long"] == "format" else ():
                makers.setdefault(value["name"], []).append(f"`{verb['name'].removeprefix('quarry ')}`")
    rows = ["| format | endings | made by |", "|---|---|---|"]
    for one in known["formats"]:
        endings = ", ".join(f"`.{ending}`" for ending in one["endings"])
        rows.append(f"| `{one['name']}` | {endings} | {', '.join(makers.pop(one['name']))} |")
    assert not makers, makers
    return "\n".join(rows)


def exit_code(name, text):
    """A row for each code that the help names; 0, and what holds for all verbs, are left out."""
    found = re.search(r"^Exit code: (.*?)\.?(?:\n\n|\Z)", text, re.M | re.S)
    codes = [code for code in cell(found.group(1)).split("; ") if code not in ("0", "else as for quarry")] if found else []
    return [f"| {'' if number else f'`{name}`'} | {code} |" for number, code in enumerate(codes)]


def exit_codes(root):
    known = definition(root)
    rows = ["| verb | exit code |", "|---|---|", *exit_code("quarry", known["after"])]
    for verb in known["verbs"]:
        rows += exit_code(verb["name"].removeprefix("quarry "), verb["after"])
    return "\n".join(rows)


def tables(root):
    """The names of the lists of columns and of keys."""
    return tuple(definition(root)["tables"])


def keyboard(root, name):
    """A list of keys."""
    rows = ["| key | what it does |", "|---|---|"]
    for keys, does in definition(root)["tables"][name]:
        shown = ", ".join(key if key[0].isalpha() and len(key) > 1 else f"`{key}`" for key in keys)
        rows.append(f"| {shown} | {cell(does)} |")
    return "\n".join(rows)


def columns(root, name):
    """The columns of a report: head, source where there is one, meaning."""
    known = definition(root)["tables"][name]
    rows = ["| column | made of | meaning |", "|---|---|---|"] if len(known[0]) == 3 else ["| column | meaning |", "|---|---|"]
    return "\n".join([*rows, *("| " + " | ".join(map(cell, row)) + " |" for row in known)])


def chapters(root):
    """The chapters of the tour, by the first lines of their sources."""
    rows = ["| chapter | what it shows |", "|---|---|"]
    for path in sorted((root / CHAPTERS).glob("[0-9]*.c")):
        title = path.read_text().splitlines()[1].partition(": ")[2]
        rows.append(f"| `{path.stem.partition('-')[2]}` | {title} |")
    return "\n".join(rows)


def pages(root):
    """Name -> text of each page."""
    return {f"{FOLDER}/{page_name(verb)}": page(verb) for verb in definition(root)["verbs"]}
