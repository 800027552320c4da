# SPDX-License-Identifier: MIT
"""The tables of docs/guides/memory.md, of the counts that bench/advice/measure.py has made."""
import importlib.util
import json

COUNTS = "bench/advice/counts.json"
LANGUAGES = "bench/advice/languages.json"


def names(root):
    """The names of ways and blocks, from the script that counts them."""
    spec = importlib.util.spec_from_file_location("advice_measure", root / "bench/advice/measure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.WAYS, module.BLOCKS


def counts(root):
    return json.loads((root / COUNTS).read_text())


def made(about):
    return (f"Made by `bench/advice/measure.py` at commit {about['commit']}, with {about['compiler']} and {about['libc']}, on Linux {about['kernel']}, "
            f"{about['machine']}, in {about['date']}.")


def turns(root):
    document, (ways, _) = counts(root), names(root)
    rows = ["| memory for one turn | 48 bytes | 4096 bytes |", "|---|---:|---:|"]
    for way, shown in ways.items():
        small, large = (document["instructions"][f"{way} {size}"] for size in (48, 4096))
        for malloc in small:
            on = f", on {'Quarry' if malloc == 'quarry' else malloc}" if len(small) > 1 else ""
            rows.append(f"| {shown}{on} | {small[malloc]:,} | {large[malloc]:,} |")
    return "\n".join([*rows, "", made(document["about"])])


def faults(root):
    document, (_, blocks) = counts(root), names(root)
    rows = ["| block of 16 MiB | glibc | Quarry |", "|---|---:|---:|"]
    rows += [f"| {shown} | {document['faults'][block]['glibc']:,} | {document['faults'][block]['quarry']:,} |" for block, shown in blocks.items()]
    return "\n".join([*rows, "", made(document["about"])])


def toy(root):
    document = counts(root)["instructions"]
    rows = ["| what is run | glibc | Quarry |", "|---|---:|---:|"]
    for case, shown in (("toy", "`free(malloc(48))` in a loop, as written"), ("malloc 48", "the same, and the first byte is written"),
                        ("mixed", "20,000 blocks live, 16 to 515 bytes, freed at random")):
        rows.append(f"| {shown} | {document[case]['glibc']:,} | {document[case]['quarry']:,} |")
    return "\n".join([*rows, "", made(counts(root)["about"])])


def languages(root):
    """The table of docs/guides/languages.md, of what bench/advice/languages.py has measured."""
    document = json.loads((root / LANGUAGES).read_text())
    about = document["about"]
    rows = [f"| program | {about['libc']} | Quarry | what a preload reaches |", "|---|---:|---:|---|"]
    rows += [f"| {row['shown']} | {row['glibc'] / 1024:.1f} MiB | {row['quarry'] / 1024:.1f} MiB | {row['reaches']} |" for row in document["rows"]]
    versions = [f"{name} {version}" for name, version in about["versions"].items()]
    said = (f"Made by `bench/advice/languages.py` at commit {about['commit']}, on a busy {about['machine']} with 2 processors, on {about['date']}. "
            f"The versions are {', '.join(versions[:-1])} and {versions[-1]}.")
    return "\n".join([*rows, "", said])
