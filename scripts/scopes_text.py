# SPDX-License-Identifier: MIT
"""C and C++ text as tokens, and what stands before a brace. For check_scopes.py."""
import re

TOKEN = re.compile(
    r'(?P<blank>[ \t\r\f\v]+|\\\r?\n)|(?P<newline>\n)'
    r'|(?P<comment>//(?:[^\n\\]|\\\r?\n|\\.)*|/\*.*?(?:\*/|\Z))'
    r'|(?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")'
    r'|(?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"?)'
    r"|(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)"
    r"|(?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'?)"
    r'|(?P<word>[A-Za-z_$]\w*)'
    r'|(?P<punct>::|->|\+\+|--|&&|\|\||<<=|<=|>=|==|!=|[-+*/%&|^]=|\.\.\.|##|.)', re.S)

CONTROL = {"if", "for", "while", "switch", "catch"}
CLASS_KEYS = {"struct", "class", "union", "enum"}
# Words before a parenthesis that is no list of parameters.
NOT_NAMES = CONTROL | {"__attribute__", "__attribute", "alignas", "_Alignas", "__declspec", "decltype",
                       "noexcept", "requires", "asm", "__asm__", "__asm", "typeof",
                       "__typeof__", "explicit", "throw", "_Static_assert", "static_assert",
                       "return", "sizeof"}
VIEWS = {"auto", "string_view", "span"}  # return types that point to memory without a star
BEYOND = 4  # empty tokens at the end of each list, so that looking ahead finds something
CLOSERS = {"(": ")", "[": "]", "{": "}"}

# The macros of <quarry/stack.h>, and their short names in <quarry/scope.h>: QUARRY_SCOPE_NEW is t_new.
SHORT = {"QUARRY_SCOPE": "t_scope"} | {f"QUARRY_SCOPE_{name.upper()}": f"t_{name}" for name in (
    "pool seal unseal new new_raw new_extra new_extra_raw new_extra_field new_extra_field_raw renew renew_raw dup dupz strdup printf").split()}


class Token:
    """`text` is the short name of a macro, `said` what stands in the source."""
    __slots__ = ("text", "said", "kind", "line", "match", "at")

    def __init__(self, text, kind, line):
        self.text, self.said, self.kind, self.line, self.match, self.at = SHORT.get(text, text), text, kind, line, None, 0

    def __repr__(self):
        return f"{self.text}@{self.line}"


# ---- text to tokens ---------------------------------------------------------------------------------

def balanced(tokens):
    depth = 0
    for t in tokens:
        depth += (t.text == "{") - (t.text == "}")
        if depth < 0:
            return False
    return depth == 0


class Conditionals:
    """#if groups: which of their branches are read."""

    def __init__(self):
        self.output, self.open = [], []  # open: [branches], each (tokens, never)

    def tokens(self):
        return self.open[-1][-1][0] if self.open else self.output

    def directive(self, word, rest):
        if word in ("if", "ifdef", "ifndef"):
            self.open.append([([], word == "if" and rest.strip() == "0")])
        elif word in ("elif", "elifdef", "elifndef", "else") and self.open:
            self.open[-1].append(([], False))
        elif word == "endif" and self.open:
            self.close()

    def close(self):
        branches = [tokens for tokens, never in self.open.pop() if not never]
        if not all(map(balanced, branches)):
            branches = branches[:1]
        for tokens in branches:
            self.tokens().extend(tokens)

    def end(self):
        while self.open:
            self.close()
        return self.output


class Text:
    """The tokens of a file, its macros, and the lines with exceptions."""

    def __init__(self, text):
        self.macros = []  # (name, line, tokens)
        self.caller, self.ok = set(), set()
        self.tokens = self.split(text)
        link(self.tokens)

    def comment(self, text, line):
        last = line + text.count("\n")
        for word, lines in (("caller", self.caller), ("ok", self.ok)):
            if re.search(r"\bscope:\s*" + word + r"\b", text):
                lines.add(last)

    def split(self, text):
        groups, line, at, fresh = Conditionals(), 1, 0, True  # fresh: at the start of a line
        while at < len(text):
            match = TOKEN.match(text, at)
            kind, piece = match.lastgroup, match.group()
            if kind == "mark":
                kind = "raw"
            at = match.end()
            if piece == "#" and fresh:
                at = self.preprocessor(text, at, line, groups)
                line += text.count("\n", match.start(), at)
                continue
            if kind == "comment":
                self.comment(piece, line)
            elif kind not in ("blank", "newline"):
                groups.tokens().append(Token(piece, "string" if kind == "raw" else kind, line))
                fresh = False
            if kind == "newline":
                fresh = True
            line += piece.count("\n")
        return groups.end()

    def preprocessor(self, text, at, line, groups):
        """A directive from behind its # on; returns where the next line begins."""
        pieces, start = [], line
        while at < len(text):
            match = TOKEN.match(text, at)
            piece = match.group()
            if piece == "\n":
                break
            at = match.end()
            if match.lastgroup == "comment":
                self.comment(piece, line)
            elif match.lastgroup != "blank":
                pieces.append(Token(piece, match.lastgroup, line))
            line += piece.count("\n")
        if pieces:
            word = pieces[0].text
            groups.directive(word, "".join(p.text for p in pieces[1:]))
            if word == "define" and len(pieces) > 1:
                body = pieces[2:]
                link(body)
                self.macros.append((pieces[1].text, start, body))
        return at


def link(tokens):
    """Each bracket knows its partner; the text may be wrong or incomplete."""
    stack = []
    for at, token in enumerate(tokens):
        token.at = at
        if token.kind != "punct":
            continue
        if token.text in CLOSERS:
            stack.append(token)
        elif token.text in CLOSERS.values():
            if stack and CLOSERS[stack[-1].text] == token.text:
                token.match, stack[-1].match = stack[-1].at, at
                stack.pop()
            elif token.text == "}":
                # An unclosed bracket before: a brace is trusted more.
                while stack and stack[-1].text != "{":
                    stack.pop()
                if stack:
                    token.match, stack[-1].match = stack[-1].at, at
                    stack.pop()
    line = tokens[-1].line if tokens else 1
    for _ in range(BEYOND):
        tokens.append(Token("", "end", line))
        tokens[-1].at = len(tokens) - 1


def end_of(tokens, at):
    """Where the bracket at `at` closes; if it never does, the end."""
    match = tokens[at].match
    return len(tokens) - 1 - BEYOND if match is None else match


# ---- declarations ---------------------------------------------------------------------------------------

def is_capital(word):
    return word == word.upper() and len(word) > 1


def after_template(tokens, at, limit, surely=False):
    """Behind the <...> that begins at `at`, or None if it is a comparison."""
    depth, i = 0, at - 1
    while i + 1 < min(limit, at + 500):
        i += 1
        text = tokens[i].text
        if text == "(" and surely:
            i = end_of(tokens, i)
            continue
        if text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return i + 1
        elif not surely and (text in (";", "{", "}", "&&", "||", "==") or tokens[i].kind == "string"):
            return None
    return None


class Head:
    """What stands before a brace: of which function, and how it returns; or of something else."""

    def __init__(self, tokens, first, brace):
        self.tokens, self.first, self.brace = tokens, first, brace
        self.name, self.name_at, self.parameters = None, None, None
        self.kind = self.classify()

    def top(self):
        """Positions outside of parentheses and square brackets."""
        at = self.first
        while at < self.brace:
            yield at
            text = self.tokens[at].text
            if text in "([{" and self.tokens[at].kind == "punct":
                at = min(end_of(self.tokens, at), self.brace - 1)
            at += 1

    def classify(self):
        t, top = self.tokens, list(self.top())
        words = [t[i].text for i in top]
        if "namespace" in words:
            return "namespace"
        if len(top) >= 2 and words[-2] == "extern" and t[top[-1]].kind == "string":
            return "namespace"
        if "operator" in words:
            return self.operator(top[words.index("operator")])
        if self.find_name(top):
            return "member-init" if self.in_initializers() else "function"
        if "=" in words:
            return "expression"
        if any(w in CLASS_KEYS for w in words):
            return "enum" if "enum" in words else "class"
        return "expression"

    def operator(self, at):
        i = at + 1
        if i + 1 < self.brace and self.tokens[i].text == "(":
            i = end_of(self.tokens, i) + 1
        while i < self.brace and self.tokens[i].text != "(":
            i += 1
        if i >= self.brace:
            return "expression"
        self.name, self.name_at, self.parameters = "".join(t.text for t in self.tokens[at:i]), at, i
        return "member-init" if self.in_initializers() else "function"

    def find_name(self, top):
        """The word before the list of parameters."""
        t, candidates = self.tokens, []
        for i in top:
            if t[i].text == "=":
                return False
            if t[i].text != "(" or i == self.first:
                continue
            before = t[i - 1]
            if before.text == ">" and candidates == []:
                k = i - 1
                while k > self.first and t[k].text != "<":
                    k -= 1
                before = t[k - 1] if k > self.first else before
            if before.text == "*" and t[i + 1].text == "*":
                candidates.append((before, i))  # int *(*f(void))[3] {
            elif before.kind == "word" and before.text not in NOT_NAMES:
                if before.at > self.first and t[before.at - 1].text in CLASS_KEYS:
                    continue  # struct ATTRIBUTE(x) name {
                candidates.append((before, i))
        # int (*f(void))(int) {
        for n, (before, i) in enumerate(candidates):
            if t[i + 1].text == "*" and t[i + 2].kind == "word" and t[i + 3].text == "(" and i + 3 < end_of(t, i):
                candidates[n] = (t[i + 2], i + 3)
        candidates = [c for c in candidates if c[0].kind == "word"]
        plain = [c for c in candidates if not is_capital(c[0].text)] or candidates
        if not plain:
            return False
        word, self.parameters = plain[0]
        self.name, self.name_at = word.text, word.at
        if is_capital(word.text) and word.at == self.first:  # TEST(name) {
            self.name += "".join(x.text for x in t[self.parameters:end_of(t, self.parameters) + 1])[:60]
        elif t[word.at - 1].text == "~" and word.at > self.first:
            self.name = "~" + self.name
        return True

    def in_initializers(self):
        """Foo::Foo(int a) : a_{a}, b_(a) {   the first brace is not the body."""
        t, at = self.tokens, end_of(self.tokens, self.parameters) + 1
        while at < self.brace and t[at].text != ":":
            at = end_of(t, at) + 1 if t[at].text in ("(", "[") else at + 1
        return at < self.brace and (t[self.brace - 1].kind == "word" or t[self.brace - 1].text == ">")

    def returns_pointer(self):
        words = {x.text for x in self.tokens[self.first:self.name_at]}
        close = end_of(self.tokens, self.parameters)
        words |= {x.text for x in self.tokens[close + 1:self.brace] if "->" in [y.text for y in self.tokens[close + 1:self.brace]]}
        if "*" in words or words & VIEWS:
            return True
        return self.tokens[self.parameters - 2].text == "*"

    def is_old_style(self):
        """int f(a, b) int a; {   so that the ; before the brace does not end the declaration"""
        if not self.parameters:
            return False
        close = end_of(self.tokens, self.parameters)
        inside = [x for x in self.tokens[self.parameters + 1:close] if x.text != ","]
        behind = [x for x in self.tokens[close + 1:self.brace] if x.kind == "word" and not is_capital(x.text)]
        types = inside and inside[0].text != "void" and all(x.kind == "word" for x in inside)
        return bool(types) and len(behind) >= 2 and behind[0].text not in NOT_NAMES and self.tokens[close + 1].kind == "word"
