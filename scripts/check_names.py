#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that a name of src/ means one thing.

  check_names.py [ROOT]       exit 1 and one line for each name that stands for two things
  check_names.py --self-test  prove that each rule can fail

Rules, over all .c and .h files of src/:
  static  a static function or file-scope variable has a name that no other file gives to one of its own. In a profile, a
          backtrace or a search such a name says where it belongs: `slab_take`, `ring_take`, not `take`
  type    a typedef name or a tag of a struct, union or enum is defined in one file

The text is split into tokens; nothing is compiled, so all branches of #if are read. What a macro defines is not seen.
"""
import collections
import pathlib
import re
import sys
import tempfile

TOKEN = re.compile(r'[A-Za-z_]\w*|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|\.\.\.|\S')
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)
# Words with a parenthesis behind them that are no function's name.
ATTRIBUTE = re.compile(r"__attribute__|__typeof__|_Alignas|_Atomic|_Static_assert|QY_[A-Z_]+|QUARRY_[A-Z_]+")
KEYS = {"struct", "union", "enum"}


def tokens(text):
    text = NOISE.sub(lambda m: m.group(1) or " ", text)
    return TOKEN.findall(DIRECTIVE.sub("", text))


def skip(words, at):
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    while at < len(words):
        depth += (words[at] in "([{") - (words[at] in ")]}")
        at += 1
        if not depth:
            break
    return at


def declarations(words):
    """Each declaration or definition of a file: its words, of which brackets and what is in them are one word '()', '[]' or '{}'."""
    at, found = 0, []
    while at < len(words):
        word = words[at]
        if word == ";":
            yield found
            found = []
            at += 1
        elif word in "([{":
            end = skip(words, at)
            inside = words[at + 1:end - 1]
            found.append({"(": "()", "[": "[]", "{": "{}"}[word])
            if word == "(" and inside[:1] == ["*"] and len(inside) > 1:
                found.append(inside[-1] if "(" not in inside else inside[1])  # (*name)(...)
            at = end
            # The body of a function ends a definition; that of a struct or an array does not.
            if word == "{" and not (KEYS & set(found) and "=" not in found and "()" not in found) and "=" not in found:
                yield found
                found = []
        else:
            found.append(word)
            at += 1


def without_attributes(words):
    out, at = [], 0
    while at < len(words):
        if ATTRIBUTE.fullmatch(words[at]):
            at += 2 if words[at + 1:at + 2] == ["()"] else 1
            continue
        out.append(words[at])
        at += 1
    return out


def static_name(words):
    if "static" not in words:
        return None
    words = without_attributes(words)
    while "{}" in words and (words[words.index("{}") - 1] in KEYS or words[words.index("{}") - 2] in KEYS):
        del words[words.index("{}")]  # of a struct without a name for its type
    names = []
    for word in words:
        if word in ("=", "{}", "()", "[]"):
            break
        names.append(word)
    names = [n for n in names if re.fullmatch(r"[A-Za-z_]\w*", n)]
    return names[-1] if len(names) > 1 else None


def types(words):
    words = without_attributes(words)
    for key, name, body in zip(words, words[1:], words[2:]):
        if key in KEYS and body == "{}":
            yield f"{key} {name}"
    if words[:1] == ["typedef"]:
        names = [w for w in words if re.fullmatch(r"[A-Za-z_]\w*", w)]
        behind = words.index("()") if "()" in words else None
        if behind is not None and behind + 1 < len(words) and re.fullmatch(r"\w+", words[behind + 1]):
            yield words[behind + 1]      # typedef int (*name)(...)
        elif behind is not None:
            yield words[behind - 1]      # typedef int name(...)
        elif names:
            yield names[-1]


def check(root):
    static, kinds = collections.defaultdict(set), collections.defaultdict(set)
    for path in sorted((root / "src").rglob("*.[ch]")):
        name = path.relative_to(root).as_posix()
        for words in declarations(tokens(path.read_text())):
            own = static_name(words)
            if own:
                static[own].add(name)
            for kind in types(words):
                kinds[kind].add(name)
    return [f"{what} {name} is of {len(files)} files: {', '.join(sorted(files))}"
            for what, table in (("static", static), ("type", kinds)) for name, files in sorted(table.items()) if len(files) > 1], len(static)


def self_test():
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        (root / "src/a").mkdir(parents=True)

        def write(name, text):
            (root / "src" / name).write_text(text)

        write("a/one.c", "#define static_take(x) \\\n static int take(void)\ntypedef struct qy_x { int take; } qy_x_t;\n"
              "static int one_take(int find) { static int hidden; return find + hidden; }\nstatic int one_table[2] = {1, 2};\n"
              "// static int two_take(void);\nint shared(void) { return 0; }\ntypedef void (*one_fn_t)(int a);\ntypedef int one_call_t(void);\n"
              "QY_COLD static QY_NOINLINE(2) void one_cold(void) {}\nstatic _Atomic bool one_flag;\nstatic struct { int a; } one_state;\n")
        write("a/two.h", 'static int two_take(int find);\nstatic int two_take(int find) { return one_take(find) + (int)sizeof "static int one_take(void)"; }\n')
        assert check(root) == ([], 6), check(root)
        for text, word in (("static void one_take(void) {}", "static one_take"), ("static int one_table[] = {3};", "static one_table"),
                           ("static char *one_cold;", "static one_cold"), ("static _Atomic(char *) one_flag;", "static one_flag"), ("static int one_state = 2;", "static one_state"),
                           ("#if 0\nstatic inline int two_take(void) { return 1; }\n#endif", "static two_take"),
                           ("typedef int qy_x_t;", "type qy_x_t"), ("struct qy_x { char c; };", "type struct qy_x"), ("typedef char *(*one_fn_t)(void);", "type one_fn_t"),
                           ("typedef long one_call_t(int);", "type one_call_t")):
            write("a/three.c", text + "\n")
            problems, _ = check(root)
            assert len(problems) == 1 and problems[0].startswith(word + " is"), (text, problems)
        write("a/three.c", "void f(void) { static int one_flag; struct qy_x x; use(one_flag, x); }\nextern struct qy_x *one_list;\n")
        assert not check(root)[0], check(root)
    print("self-test: names of two files were found out")


def main():
    if "--self-test" in sys.argv:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    problems, names = check(root)
    print("\n".join(problems) or f"names: {names} static ones, clean")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
