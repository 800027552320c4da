#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that the words read once: docs/style.md, as far as a script can see it.

  check_prose.py [ROOT]       exit 1 and one line for each fault
  check_prose.py --show FILE  the faults of one file
  check_prose.py --message FILE  of a message that is about to be committed (scripts/commit-msg)
  check_prose.py --self-test  prove that each rule can fail

Read are: documents; the comments of public headers; help texts (doc comments of the tool's verbs); messages (string literals of
the library and the tool); and the commits since this script was added.

Rules: a sentence has at most 40 words. The sentences of a document have 22 on average, and those of a header 25. Some phrases are
not used (PHRASES). A commit's subject has at most 60 characters, and its body says why.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LONGEST, SUBJECT = 40, 60
OF_DOCUMENT, OF_HEADER = 22, 25  # words a sentence on average
SENTENCES_MIN = 5  # fewer have no average that says anything

DOCUMENTS = ("*.md", "docs/**/*.md", "src/**/*.md", "tests/**/*.md", "bench/**/*.md", "tools/**/*.md", "examples/**/*.md", "bindings/**/*.md")
HEADERS = ("include/**/*.h", "include/**/*.hpp")
HELP = ("tools/quarry/src/**/*.rs",)
MESSAGES = ("src/**/*.c", "tools/**/src/**/*.rs")
SKIPPED = {"build", "target", ".git", "node_modules"}

# What the phrase does to a reader, and what to write instead, is in docs/style.md.
PHRASES = {
    r"(?:^|[.;:,(] |\b(?:by|of|to|for|from|with|than|as|if|and|or|that|what|is|are|was|see|ask|asks|tell|tells|let|lets) )[Ww]ho (?!is it|are you)[a-z]+":
        "a free 'who': name the person, the thread or the program",
    r"\b[Ww]hoever\b": "'whoever': name the person, the thread or the program",
    r"\btoday\b": "'today': name the version, or leave it out",
    r"\bof now\b": "'of now': name the version",
    r"\bwhere (?:it|that|they) (?:is|are) not\b": "'where it is not': say what is not",
    r"\b[Ss]o (?:many|much)\b(?! (?:as|that|more|less|the))": "'so many', 'so much': name the number",
    r"\bthe former\b|\bthe latter\b": "'the former', 'the latter': name the thing",
}
PHRASES = {re.compile(phrase): why for phrase, why in PHRASES.items()}
# A count in a message of the C libraries, and a word that is wrong where the count is 1. src/rt/diag.h has %S.
PLURAL = re.compile(r"%[zlu] (?:[a-z]+ )?(?:byte|block|pool|frame|chunk|page|event|thread|error|leak|record|run|slab)s\b")


# A sentence may begin with a name that is written small, as clang and gdb are. Behind an abbreviation none begins.
LOWER = r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bcf)(?<!\bvs)(?<![ .]\w)\.(?=\s+[a-z]{2})"


def sentences(text):
    """(offset, sentence) of each sentence in running text."""
    begin = 0
    for end in re.finditer(r"[.!?][)\"'*_]*(?=\s+[\"'(*_`\[]*[A-Z0-9`])|" + LOWER + r"|\Z", text):
        sentence = text[begin:end.end()].strip()
        if sentence:
            yield begin + len(text[begin:]) - len(text[begin:].lstrip()), sentence
        begin = end.end()


def words(sentence):
    """Inline code is one word, and so is a link's text for each of its words."""
    plain = re.sub(r"`[^`]*`", "code", sentence)
    plain = re.sub(r"\]\([^)]*\)", "]", plain)
    return len(re.findall(r"[^\W_][\w'’./%:+-]*", plain))


# ---- what is read: (line, text) of each paragraph ---------------------------------------------------------

def of_document(text):
    """Paragraphs, list items and cells; no code, no headings."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2", lambda m: "\n" * m.group().count("\n"), text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    gathered, begin, after_blank = [], 0, True

    def flush():
        if gathered:
            yield begin, " ".join(gathered)
            gathered.clear()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        code = after_blank and line.startswith("    ") and not gathered
        if not stripped or stripped.startswith("#") or re.fullmatch(r"[|:\s=-]+", stripped):
            yield from flush()
            after_blank = not stripped or after_blank
            continue
        if stripped.startswith("|"):
            yield from flush()
            for cell in re.split(r"(?<!\\)\|", stripped.strip("|")):
                if cell.strip():
                    yield number, cell.strip()
            continue
        if code:
            continue
        item = re.match(r"(?:[-*+]|\d+\.) +(.*)", stripped)
        if item:
            yield from flush()
            stripped = item.group(1)
        if not gathered:
            begin = number
        gathered.append(stripped)
        after_blank = False
    yield from flush()


def of_comments(text, mark):
    """Comments in a row that stand alone are one text; one behind code is a text of its own. Blank comment lines and examples part them."""
    gathered, begin = [], 0

    def flush():
        if gathered:
            yield begin, " ".join(gathered)
            gathered.clear()
    for number, line in enumerate(text.splitlines(), 1):
        alone = re.match(rf"\s*{mark}<?!? ?(.*)", line)
        behind = None if alone else re.match(rf"[^\"]*?\S.*?\s{mark}<? ?(.*)", line)
        if alone:
            said = alone.group(1)
            if not said.strip() or (said.startswith("  ") and not gathered and not re.match(r" *(?:[-*]|\d+\.) ", said)) or re.match(r"[-=]{3,}|SPDX", said) or not re.search(r"\w", said):
                yield from flush()
                continue
            if re.match(r"\s*(?:[-*]|\d+\.) ", said):
                yield from flush()
            if not gathered:
                begin = number
            gathered.append(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", said).strip())
            continue
        yield from flush()
        if behind and mark.startswith("//"):
            yield number, behind.group(1).strip()
    yield from flush()


def of_strings(text):
    """String literals that are sentences: of five words or more."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("//", "*", "#include", "#[")):
            continue
        for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
            plain = re.sub(r"(?<!\\)\\[nrt]|\\$|\{[^}]*\}|%[-\w.*]*", " ", literal)
            if len(re.findall(r"[A-Za-z]{2,} ", plain)) >= 4:  # records of other tools' files have tags and numbers, no words
                yield number, plain.strip()


# ---- the rules -------------------------------------------------------------------------------------------

def faults_of(texts, average=None):
    """(line, what) of each fault; `average` is the most words a sentence may have on average."""
    found, counts = [], []
    for number, text in texts:
        for _, sentence in sentences(text):
            n = words(sentence)
            if n >= 3:
                counts.append(n)
            if n > LONGEST:
                found.append((number, f"a sentence of {n} words: {sentence[:60]}..."))
        bare = re.sub(r'`[^`]*`|"[^"]*"', "code", text)  # a quotation is somebody else's
        for phrase, why in PHRASES.items():
            for _ in phrase.finditer(bare):
                found.append((number, why))
    mean = sum(counts) / len(counts) if counts else 0
    if average and len(counts) >= SENTENCES_MIN and mean > average:
        found.append((1, f"{mean:.1f} words a sentence on average"))
    return sorted(found)


def plurals(text):
    """(line, what) of each plural in a format that may stand behind 1."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in () if line.lstrip().startswith("//") else PLURAL.findall(line):
            yield number, f"'{found}' may say 1: end the word with %S"


def files(root, patterns):
    """The files that match, without what is built."""
    return sorted({p for pattern in patterns for p in root.glob(pattern)
                   if p.is_file() and not any(part in SKIPPED or part.startswith("build-") for part in p.relative_to(root).parts)})


def texts_by_file(root):
    """Name of each file that is read -> its faults."""
    result = {}

    def note(path, faults):
        result.setdefault(path.relative_to(root).as_posix(), []).extend(faults)
    for path in files(root, DOCUMENTS):
        note(path, faults_of(of_document(path.read_text()), OF_DOCUMENT))
    for path in files(root, HEADERS):
        note(path, faults_of(of_comments(path.read_text(), "//+"), OF_HEADER))
    for path in files(root, HELP):
        note(path, faults_of(of_comments(path.read_text(), "///")))
    for path in files(root, MESSAGES):
        note(path, faults_of(of_strings(path.read_text())))
        if path.suffix == ".c":
            note(path, plurals(path.read_text()))
    return result


def git(root, *arguments):
    """Its output, or None: no repository, or it does not know."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def faults_of_commit(subject, body):
    """What is wrong with a message."""
    found = [f"a subject of {len(subject)} characters"] if len(subject) > SUBJECT else []
    if not body.strip():
        found.append("no body that says why")
    return found + [what for _, what in faults_of([(1, p) for p in re.split(r"\n\n|\n(?=[-*] |\s{2,})", body)])]


def check_commits(root):
    """Those that came after this script."""
    first = (git(root, "log", "--diff-filter=A", "--format=%H", "--", "scripts/check_prose.py") or "").split()
    if not first:
        return []
    problems = []
    for commit in (git(root, "log", "--no-merges", "--format=%h%x00%s%x00%b%x01", f"{first[-1]}..HEAD") or "").split("\x01"):
        if not commit.strip():
            continue
        name, subject, body = commit.strip().split("\x00")
        problems += [f"commit {name}: {what}" for what in faults_of_commit(subject, body)]
    return problems


def check_message(text):
    """A message as an editor left it: lines that begin with # are git's, and so is all below its scissors."""
    text = re.split(r"^# -+ >8 -+$", text, maxsplit=1, flags=re.M)[0]
    subject, _, body = "\n".join(line for line in text.splitlines() if not line.startswith("#")).strip().partition("\n")
    if re.match(r"(fixup|squash|amend)! |Merge ", subject):
        return []
    found = [] if re.match(r"[\w.,/ -]+: \S", subject) else ["the subject is not of the form `area: what`"]
    if body and not body.startswith("\n"):
        found.append("no blank line behind the subject")
    return [f"message: {what}" for what in [*found, *faults_of_commit(subject, body)]]


def check(root):
    """All faults, one line each."""
    problems = [f"{name}:{number}: {what}" for name, found in sorted(texts_by_file(root).items()) for number, what in found]
    return problems + check_commits(root)


# ---- itself ----------------------------------------------------------------------------------------------

def self_test():
    """Each rule fails where it must, and what is right passes."""
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)

        def write(name, text):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

        def expect(name, text, *wanted):
            write(name, text)
            found = check(root)
            assert len(found) == len(wanted) and all(w in f for w, f in zip(wanted, found)), (name, text, found)
            (root / name).unlink()

        long = "A word " + "and a word " * 14 + "end."
        good = "The heap gives the page back. A thread that frees a block takes no lock.\n\n    a command " + "x " * 50 + "\n\n| a cell | `code` |\n"
        expect("README.md", good)
        expect("README.md", good + "\n" + long + "\n", "README.md:7: a sentence of 45 words")
        expect("README.md", "```\n" + long + "\n```\n# " + long + "\n")
        expect("README.md", "Word " + "word " * 29 + "end. clang " + "word " * 29 + "end.\n")
        expect("README.md", "Word " + "word " * 29 + "etc. and " + "word " * 29 + "end.\n", "README.md:1: a sentence of 62 words")
        expect("README.md", "| x | " + long + " |\n", "README.md:1: a sentence")
        expect("docs/x.md", ("Some " + "word " * 27 + "end. ") * 6 + "\n", "docs/x.md:1: 29.0 words a sentence")
        expect("docs/x.md", ("Some " + "word " * 21 + "end. ") * 6 + "\n", "docs/x.md:1: 23.0 words a sentence")
        expect("include/a.h", "// " + ("Some " + "word " * 21 + "end. ") * 6 + "\n")
        expect("include/a.h", "// " + ("Some " + "word " * 24 + "end. ") * 6 + "\n", "include/a.h:1: 26.0 words a sentence")
        for phrase, why in (("It belongs to who frees it.", "who"), ("Who frees, waits.", "who"), ("It is so today.", "today"), ("The heap of now is fast.", "of now"),
                            ("It waits where it is not.", "where it is not"), ("It keeps so many.", "so many"), ("So much is kept.", "so many"), ("Whoever frees, waits.", "whoever"), ("Take the latter.", "latter")):
            expect("docs/x.md", phrase + "\n", why)
        expect("docs/x.md", "A user who frees. The thread that frees. As many as there are. Do you know who frees it?\n")
        expect("include/a.h", "// " + long + "\nint x;  ///< who frees it\n", "include/a.h:1: a sentence", "include/a.h:2: a free 'who'")
        expect("include/a.h", "// One fact. " + "\n// Another, of a few words.\n//\n//   code(" + "x, " * 60 + ");\nint x;\n")
        expect("tools/quarry/src/a.rs", "/// " + long + "\nfn x() {}\n", "a sentence")
        expect("src/a.c", 'qy_fatal("the block of who frees it is gone");\n', "a free 'who'")
        expect("src/a.c", 'f("%z bytes");\n', "src/a.c:1: '%z bytes' may say 1")
        expect("src/a.c", 'f("%l live blocks of %u pools");\n', "'%l live blocks'", "'%u pools'")
        expect("src/a.c", 'f("%z byte%S, %u other pool%S, %z of %z byte%S");\n// %z bytes\n')
        record = r"m 1 -\nm 1 x 55d0 0 1000\nt 55d1 0\n+ 64 2 7fee10\n- 7fee10\n" * 3
        expect("tools/crates/x/src/a.rs", f'let raw = "{record}";\n')
        expect("tools/crates/x/src/a.rs", f'let text = "{long[:-4]}\\nend.\\n";\n', "a.rs:1: a sentence of 45 words")

        # A message before it is a commit.
        for message in ("heap: x\n\nWhy.\n# " + long, "Merge a\n", "fixup! heap: x", "a, b: x\n\nWhy.\n# ---- >8 ----\n" + long):
            assert check_message(message) == [], (message, check_message(message))
        for message, what in (("heap: " + "x" * 60 + "\n\nWhy.", "66 characters"), ("heap: x\n", "no body"), ("heap: x\nWhy.", "no blank line"),
                              ("heap\n\nWhy.", "area: what"), ("heap: x\n\n" + long, "45 words")):
            assert len(check_message(message)) == 1 and what in check_message(message)[0], (message, check_message(message))

        # Commits.
        def commit(message):
            for step in (("add", "-A"), ("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", message)):
                assert git(root, *step) is not None, step

        if git(root, "init", "-q") is None:
            print("self-test: no git here; the rules of commits were left out")
            return 0
        write("scripts/check_prose.py", "")
        commit("first\n\nWhy.")
        assert check(root) == [], check(root)
        write("a.txt", "1")
        commit("x" * 61)
        assert [p.split(": ")[1] for p in check(root)] == ["a subject of 61 characters", "no body that says why"], check(root)
    print("self-test: long sentences, long averages, phrases and bare commits were found out")
    return 0


def main():
    """Exit status."""
    if "--self-test" in sys.argv:
        return self_test()
    if "--show" in sys.argv:
        name = pathlib.Path(sys.argv[sys.argv.index("--show") + 1]).resolve().relative_to(ROOT).as_posix()
        print("\n".join(f"{name}:{number}: {what}" for number, what in texts_by_file(ROOT).get(name, [])) or f"{name}: clean")
        return 0
    if "--message" in sys.argv:
        found = check_message(pathlib.Path(sys.argv[sys.argv.index("--message") + 1]).read_text())
        print("\n".join(found) or "message: clean")
        return bool(found)
    problems = check(pathlib.Path(next(iter(sys.argv[1:]), ROOT)))
    print("\n".join(problems) or "prose: clean")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
