#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Find allocations on the thread's stack without a scope, and pointers that leave theirs.

  check_scopes.py [--json] [FILE|FOLDER...]   one line for each finding; exit 1 if there is one
  check_scopes.py --self-test                 prove that each rule can fail

Without names: include, src, bench and examples of the tree the script lies in. Exit 2: usage.

A use is a call of a name that begins with t_: a macro of <quarry/scope.h>, or a function that by its name
allocates in its caller's frame. QUARRY_SCOPE_NEW and the like, of <quarry/stack.h>, count as t_new and so on.
Of t_pool() only an allocation from it is a use (p_new, quarry_pool_alloc and their kin). A scope is opened by
`t_scope;` or `QUARRY_SCOPE;`, in C++ also by a variable of quarry::scope, and by quarry_stack_push(t_pool(), ...).
It lasts to the end of the block it stands in. Rules:

  no-scope    a use without a scope in force, in a function (macro, initializer) whose name does not begin with t_
  jumps-in    a case or goto label behind a t_scope, reached by a jump that passes it by
  escapes     a pointer from a use is returned out of its scope, stored where it outlives it (through a parameter,
              in a static or global variable, in *this), or used behind the end of its scope
  t-function  the same of a t_ function: its caller expects a pointer that lives in the caller's frame

Exceptions are said in a comment: "scope: caller" on the line of a use, or on or above the line of a function's name
(the caller opens the scope, as if its name began with t_); "scope: ok" on the line of a finding.

How it works, and its limits: the text is split into tokens and followed block by block; nothing is compiled, so no
include paths are needed and macros are not expanded. Of #if groups all branches are read if each has balanced
braces, else the first. What a macro of your own hides (a t_scope, a use, a brace) is seen in its #define only. A
lambda is taken to run where it stands. Calls by function pointers are seen if the pointer's name begins with t_.
Pointers are followed through plain variables in the order of the text, not through structures, casts to integers
or other functions, and not round loops. So: no finding is not a proof; the library's own check (no open frame)
and AddressSanitizer find the rest when it happens.
"""
import json
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True  # where this is installed, no file belongs beside it that the package does not know
from scopes_pointers import NO_USE, NOT_TYPES, Block, Function, Pointers, Scope, Variable
from scopes_text import BEYOND, CLASS_KEYS, CLOSERS, CONTROL, Head, Text, after_template, end_of

SUFFIXES = {".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx", ".inl"}
OWN_FOLDERS = ("include", "src", "bench", "examples")
# Calls that allocate from the pool that is their first argument: t_pool() in another place is only a name of it.
ALLOCATES = re.compile(r"p_\w+|QUARRY_(NEW|RENEW|DUP|STRDUP)\w*|quarry_pool_(alloc|resize|v?printf)|quarry_stack_alloc")
UNEVALUATED = {"sizeof", "typeof", "__typeof__", "decltype", "_Alignof", "alignof", "noexcept"}


class Checker:
    def __init__(self, file, text, cxx):
        self.file, self.cxx, self.source = file, cxx, Text(text)
        self.t, self.findings, self.globals = self.source.tokens, [], {}
        self.scope_word = cxx and re.search(r"\busing\s+(namespace\s+quarry|quarry\s*::\s*scope)\s*;", text) is not None
        self.seen, self.last = set(), None
        self.members = {}  # of all classes of this file

    def found(self, token, function, rule, message):
        if token.line in self.source.ok or (token.line, rule) in self.seen:
            return
        self.seen.add((token.line, rule))
        self.findings.append({"file": str(self.file), "line": token.line, "function": function.name, "rule": rule, "message": message})

    def run(self):
        self.declarations(0, len(self.t) - BEYOND)
        for name, line, body in self.source.macros:
            self.macro(name, line, body)
        return sorted(self.findings, key=lambda f: f["line"])

    # ---- outside of functions ----

    def declarations(self, at, end):
        """Of a file, a namespace or a class."""
        first = at
        while at < end:
            token = self.t[at]
            if token.text in ("(", "[") and token.kind == "punct":
                at = end_of(self.t, at) + 1
            elif token.text == "template" and at + 1 < end and self.t[at + 1].text == "<":
                at = after_template(self.t, at + 1, end, True) or at + 1
                first = at if self.t[first].text == "template" else first
            elif token.text == ";":
                first = self.declaration_end(first, at)
                at += 1
            elif token.text == ":" and at > first and self.t[at - 1].text in ("public", "private", "protected"):
                at += 1
                first = at
            elif token.text == "=" and "operator" not in [x.text for x in self.t[first:at]]:
                at = self.initializer(first, at, end)
            elif token.text == "{":
                first, at = self.brace(first, at)
            else:
                at += 1

    def declaration_end(self, first, at):
        """Behind the ; at `at`. Names of variables are remembered; an old-style head goes on."""
        words = [x.text for x in self.t[first:at]]
        if "typedef" not in words and "using" not in words:
            head = Head(self.t, first, at)
            if head.kind == "function" and head.is_old_style():
                return first
            if head.name is None:
                self.global_names(first, at)
        return at + 1

    def global_names(self, first, at):
        for i in range(first + 1, at):
            before, word = self.t[i - 1], self.t[i]
            behind = self.t[i + 1].text if i + 1 < len(self.t) else ";"
            after_type = before.kind == "word" and before.text not in CLASS_KEYS or before.text in ("*", ",", ">", "}")
            if word.kind == "word" and behind in (";", ",", "=", "[") and after_type:
                self.globals[word.text] = Variable(before.text == "*", "a global variable")

    def initializer(self, first, at, end):
        """From a = outside of functions to its ; or ,: there is no scope here."""
        stop = at
        while stop < end and self.t[stop].text != ";":
            stop = end_of(self.t, stop) + 1 if self.t[stop].text in CLOSERS else stop + 1
        self.global_names(first, at)
        name = next((x.text for x in reversed(self.t[first:at]) if x.kind == "word"), "")
        code = Function(name or "initializer", False, False)
        Body(self, code).expression(at + 1, min(stop, end))
        self.global_names(first, min(stop, end))
        return stop

    def brace(self, first, at):
        """A { outside of functions. Returns where the next declaration begins, and where to go on."""
        head, close = Head(self.t, first, at), end_of(self.t, at)
        if self.t[first].text == "catch" and self.last:  # of a function that is a try block
            self.function(self.last, at, close)
            return close + 1, close + 1
        if head.kind == "namespace":
            self.declarations(at + 1, close)
            return close + 1, close + 1
        if head.kind == "function":
            self.last = head
            self.function(head, at, close)
            return close + 1, close + 1
        if head.kind == "class":
            saved, self.globals = self.globals, {}
            self.class_members(at + 1, close)
            self.declarations(at + 1, close)
            self.globals = saved
        return first, close + 1

    def class_members(self, at, end):
        """Its variables, which functions in the class may use before they are declared."""
        first = at
        while at < end:
            text = self.t[at].text
            if text in (";", "=") and "(" not in [x.text for x in self.t[first:at]]:
                self.global_names(first, at)
            if text in (";", ":", "}"):
                first = at + 1
            at = end_of(self.t, at) if text in CLOSERS else at + 1
            if text == "{" and at < end:
                first, at = at + 1, at + 1
            elif text in CLOSERS:
                at += 1
        self.members.update(self.globals)

    def function(self, head, at, close, outer=None):
        line = self.t[head.name_at].line
        marked = bool(self.source.caller & {line, line - 1, self.t[head.first].line - 1, self.t[head.first].line})
        code = Function(head.name, marked, head.returns_pointer(), outer)
        body = Body(self, code)
        body.parameters(head.parameters, at)
        if at == head.brace and ":" in [x.text for x in self.t[end_of(self.t, head.parameters):at]]:
            body.expression(end_of(self.t, head.parameters) + 1, at)  # constructors' initializers
        body.block(at + 1, close)
        body.finish()

    def macro(self, name, line, body):
        """#define name(x) t_...: the macro must be t_ itself, or open a scope."""
        start = 0
        if body and body[0].text == "(" and body[0].match is not None:
            start = body[0].match + 1
        if not any(x.text.startswith("t_") for x in body):
            return
        code = Function(name, bool(self.source.caller & {line, line - 1}), False)
        saved, self.t = self.t, body
        Body(self, code).block(start, len(body) - BEYOND)
        self.t = saved


class Body(Pointers):
    """The code of one function, in the order of the text."""

    def __init__(self, checker, code):
        self.c, self.code = checker, code

    # ---- blocks and statements ----

    def parameters(self, at, brace):
        close = end_of(self.t, at)
        types = self.t[close + 1:brace] if self.t[brace - 1].text == ";" else []  # old style
        for part in ([*self.t[at + 1:close]], types):
            for n, word in enumerate(part):
                behind = part[n + 1].text if n + 1 < len(part) else ","
                if word.kind == "word" and behind in (",", ";", "[", "=", ")") and n > 0:
                    before = part[n - 1].text
                    outlives = "a parameter" if before in ("*", ">") or behind == "[" else None
                    if before in ("&", "&&"):
                        outlives = "a reference"
                    stars = [x.text for x in part[max(0, n - 2):n]].count("*") + (behind == "[")
                    self.code.blocks[0].variables[word.text] = Variable(stars > 0, outlives, stars > 1)

    def block(self, at, end):
        """Statements up to `end`."""
        while at < end:
            at = self.statement(at, end)

    def nested(self, at, close, switch=False):
        """{ ... } as a block of its own."""
        block = Block()
        block.switch = switch
        self.code.blocks.append(block)
        self.block(at + 1, close)
        left = self.leaves(at, close)
        self.code.blocks.pop()
        for scope in block.scopes:
            scope.open = False
            if left:  # what was assigned in here is not seen behind the block
                for b in self.code.blocks:
                    for v in b.variables.values():
                        if v.scope is scope:
                            v.scope = None

    def leaves(self, at, close):
        """Does the block end with a statement that leaves the function, or goes elsewhere?"""
        k, start = close - 1, at + 1
        while k > at and self.t[k].text == ";":
            k -= 1
        while k > at:
            text = self.t[k].text
            if text in (")", "]", "}") and self.t[k].match is not None:
                k = self.t[k].match
            elif text in (";", "{"):
                start = k + 1
                break
            k -= 1
        return self.t[start].text in ("return", "goto", "continue", "break", "throw", "exit", "_exit", "abort", "quarry_fatal", "__builtin_unreachable")

    def statement(self, at, end):
        """One statement, or the head of one (if (...)); returns what follows it."""
        token = self.t[at]
        text = token.text
        if text == "{":
            close = min(end_of(self.t, at), end)
            self.nested(at, close)
            return close + 1
        if text in (";", "}", "else", "do", "try"):
            return at + 1
        if text in CONTROL:
            return self.control(at, end)
        if text in ("case", "default"):
            return self.case(at, end)
        if token.kind == "word" and at + 1 < end and self.t[at + 1].text == ":" and text not in NOT_TYPES:
            self.code.labels[text] = (token, self.code.scopes())
            return at + 2
        if text in ("using", "typedef"):
            return self.statement_end(at, end) + 1
        if text in CLASS_KEYS and self.local_class(at, end):
            return self.local_class(at, end)
        stop = self.statement_end(at, end)
        if self.opens_scope(at, stop):
            return stop + 1
        nested = self.nested_function(at, stop)
        if nested:
            return nested
        if text == "goto" and at + 1 < end:
            self.code.gotos.append((token, self.t[at + 1].text, self.code.scopes()))
            return stop + 1
        self.simple(at, stop)
        # for_each(...) { }: the block stands behind
        return stop if stop < end and self.t[stop].text == "{" else stop + 1

    def statement_end(self, at, end):
        """Its ;, or the { of the block behind a macro, or the end."""
        start = at
        while at < end:
            text = self.t[at].text
            if text == ";":
                return at
            if text == "{":
                close = end_of(self.t, at)
                if at > start and self.t[at - 1].text == ")" and self.looks_like_block(at, close) and not self.is_lambda_brace(at):
                    return at
                at = close + 1
            elif text in ("(", "["):
                at = end_of(self.t, at) + 1
            elif text == "}":
                return at
            else:
                at += 1
        return end

    def looks_like_block(self, at, close):
        """Braces with statements, not an initializer: a ; or a block directly inside. Empty ones behind a macro count."""
        i = at + 1
        if i == close:
            opening = self.t[at - 1].match
            return opening is not None and opening > 0 and self.t[opening - 1].kind == "word"
        while i < close:
            text = self.t[i].text
            if text == ";" or text in CONTROL:
                return True
            i = end_of(self.t, i) + 1 if text in CLOSERS else i + 1
        return False

    def is_lambda_brace(self, at):
        opening = self.t[at - 1].match
        return opening is not None and opening > 0 and self.t[opening - 1].text in ("]", "^")

    def control(self, at, end):
        """if (...), for (...), ...: the parenthesis is read, its block or statement comes next."""
        i = at + 1
        while i < end and self.t[i].text in ("constexpr", "consteval", "!"):
            i += 1
        if i >= end or self.t[i].text != "(":
            return i
        close = end_of(self.t, i)
        part = i + 1
        while part <= close:
            stop = part
            while stop < close and self.t[stop].text != ";":
                stop = end_of(self.t, stop) + 1 if self.t[stop].text in CLOSERS else stop + 1
            self.simple(part, min(stop, close))
            part = stop + 1
        after = close + 1
        if after < end and self.t[after].text == "{":
            body_end = min(end_of(self.t, after), end)
            self.nested(after, body_end, switch=self.t[at].text == "switch")
            return body_end + 1
        if after < end and self.t[after].text == "t_scope":
            self.c.found(self.t[after], self.code, "no-scope", "a t_scope that is all of a statement ends at once; put braces around it and what it is for")
            return self.statement_end(after, end) + 1
        return after

    def case(self, at, end):
        for block in reversed(self.code.blocks):
            if block.scopes:
                line = block.scopes[-1].line
                self.c.found(self.t[at], self.code, "jumps-in", f"this label is behind the t_scope of line {line}, which a jump here passes by; put braces around each case")
                break
            if block.switch:
                break
        while at < end and self.t[at].text != ":":
            if self.t[at].text == "?":
                at += 1
                while at < end and self.t[at].text != ":":
                    at += 1
            at += 1
        return at + 1

    def local_class(self, at, end):
        """struct name { ... } in a function; returns where to go on, or None if it is no definition."""
        i = at + 1
        while i < end and self.t[i].text not in ("{", ";", "=", "("):
            i += 1
        if i >= end or self.t[i].text != "{" or self.t[i - 1].text in ("]", ")"):
            return None
        close = end_of(self.t, i)
        if self.t[at].text != "enum":
            self.c.declarations(i + 1, close)
        stop = self.statement_end(close + 1, end)
        return stop + 1

    def opens_scope(self, at, stop):
        words = [x.text for x in self.t[at:min(stop, at + 10)]] + [""] * 3
        opens = words[:1] == ["t_scope"] or words[:2] == ["quarry_stack_push", "("] and self.is_own_stack(words[2:])
        if self.c.cxx and not opens:
            rest = words[words[:1] == ["const"]:]
            if rest[:3] == ["quarry", "::", "scope"]:
                rest = rest[3:]
            else:
                rest = rest[1:] if self.c.scope_word and rest[:1] == ["scope"] else []
            if rest and rest[0] in ("(", "{"):
                self.c.found(self.t[at], self.code, "no-scope", "a scope without a name ends at once; give it one")
                return True
            if rest and re.match(r"[A-Za-z_]", rest[0]):
                # Of another stack, or of the thread's?
                opens = rest[1:2] not in (["("], ["{"]) or rest[2] in (")", "}") or self.is_own_stack(rest[2:])
        if opens:
            self.code.blocks[-1].scopes.append(Scope(self.t[at].line))
        return opens

    @staticmethod
    def is_own_stack(words):
        return words[:3] in (["t_pool", "(", ")"], ["quarry_stack_of_thread", "(", ")"])

    def nested_function(self, at, stop):
        """A function in a function (GNU C): type name(...) { ... }"""
        if stop >= len(self.t) or self.t[stop].text != "{" or self.t[stop - 1].text != ")":
            return None
        opening = self.t[stop - 1].match
        if opening is None or opening - at < 2 or self.t[opening - 1].kind != "word":
            return None
        if not all(x.kind == "word" or x.text == "*" for x in self.t[at:opening]):
            return None
        head, close = Head(self.t, at, stop), end_of(self.t, stop)
        if head.kind != "function":
            return None
        self.c.function(head, stop, close, self.code)
        return close + 1

    # ---- expressions ----

    def simple(self, at, stop):
        """A declaration or an expression statement, without its ;."""
        if at >= stop:
            return
        if self.t[at].text in ("return", "co_return"):
            self.expression(at + 1, stop)
            self.returned(at, stop)
            return
        for first, last in self.declarators(at, stop):
            self.expression(first, last)
            self.assigned(first, last)

    def declarators(self, at, stop):
        """The statement's parts between top-level commas; what is declared is known behind."""
        declared = self.declared(at, stop)
        i = first = at
        while i < stop:
            text = self.t[i].text
            if text == ",":
                yield first, i
                first = i + 1
                if declared:
                    k = first
                    while k < stop and self.t[k].text in ("*", "const"):
                        k += 1
                    if k < stop and self.t[k].kind == "word":
                        self.declare(self.t[k].text, k > first, declared == "static")
            i = end_of(self.t, i) + 1 if text in CLOSERS else i + 1
        yield first, stop

    def declared(self, at, stop):
        """Does a declaration begin here? Its first variable is entered. False, True or "static"."""
        i, types, pointer, static = at, 0, False, False
        while i < stop:
            word = self.t[i]
            if word.kind == "word":
                if word.text in NOT_TYPES:
                    return False
                behind = self.t[i + 1].text if i + 1 < stop else ";"
                pointer = pointer or "auto" in (word.text, self.t[i - 1].text)
                if types and behind in ("=", ";", ",", "[", ":", "{") or types and i + 1 >= stop:
                    self.declare(word.text, pointer, static)
                    return "static" if static else True
                static = static or word.text in ("static", "thread_local", "_Thread_local", "__thread", "extern")
                types += word.text not in ("static", "extern", "const", "register", "volatile")
                pointer = False
            elif word.text in ("*", "&", "&&"):
                if not types:
                    return False
                pointer = pointer or word.text == "*"
            elif word.text == "<" and self.c.cxx and types:
                behind = after_template(self.t, i, stop)
                if behind is None:
                    return False
                i = behind
                continue
            elif word.text not in ("::",):
                return False
            i += 1
        return False

    def declare(self, name, pointer, static):
        self.code.blocks[-1].variables[name] = Variable(pointer, "a static variable" if static else None)

    def expression(self, at, stop):
        """Uses, lambdas, statement expressions and dead pointers in [at, stop)."""
        i = at
        while i < stop:
            token = self.t[i]
            if token.kind == "word":
                if token.text in UNEVALUATED and i + 1 < stop and self.t[i + 1].text == "(":
                    i = end_of(self.t, i + 1) + 1
                    continue
                if token.text.startswith("t_") and self.is_call(i, stop):
                    self.use(i, at)
                else:
                    self.mention(i, stop)
            elif token.text == "[":
                behind = self.lambda_at(i, stop)
                if behind:
                    i = behind
                    continue
            elif token.text == "{" and self.looks_like_block(i, end_of(self.t, i)):
                close = min(end_of(self.t, i), stop)
                self.nested(i, close)
                i = close
            i += 1

    def is_prototype(self, i, first):
        """char *t_make(int); in a function"""
        before = self.t[first:i]
        return bool(before) and all(x.kind == "word" and x.text not in NOT_TYPES or x.text == "*" for x in before)

    def use(self, i, first):
        token = self.t[i]
        if token.text in NO_USE or self.is_prototype(i, first):
            return
        if token.text == "t_pool" and not (i >= 2 and self.t[i - 1].text == "(" and ALLOCATES.fullmatch(self.t[i - 2].text)):
            return
        if self.code.scopes():
            return
        code = self.code
        while code:
            if code.is_t:
                return
            code = code.outer
        if token.line in self.c.source.caller:
            return
        name = self.code.name.split("::")[-1]
        rename = f", or name it t_{name}" if re.fullmatch(r"\w+", name) and name not in ("main", "lambda", "initializer") else ""
        self.c.found(token, self.code, "no-scope", f"{token.said} allocates in the frame of a scope, and none is open here; put t_scope; before it{rename}")

    def mention(self, i, stop):
        """A variable whose memory has ended is read."""
        token = self.t[i]
        v = self.code.variable(token.text)
        if not v or not v.scope or v.scope.open or i and self.t[i - 1].text in (".", "->", "::"):
            return
        if i + 1 < stop and self.t[i + 1].text == "=":
            return
        self.c.found(token, self.code, self.rule(), f"{token.text} points to what {v.source} allocated under the t_scope of line {v.scope.line}, which has ended")
        v.scope = None

    def lambda_at(self, i, stop):
        """Behind the lambda that begins at the [, or None."""
        before = self.t[i - 1] if i else None
        if before is not None and (before.kind == "word" and before.text not in ("return", "co_return", "case") or before.text in (")", "]", "[")):
            return None
        if not self.c.cxx or self.t[i + 1].text == "[":
            return None
        k = end_of(self.t, i) + 1
        parameters = None
        while k < stop and self.t[k].text != "{":
            if self.t[k].text == "(":
                parameters = parameters or k
                k = end_of(self.t, k)
            elif self.t[k].kind != "word" and self.t[k].text not in ("->", "*", "&", "::", "<", ">", ",", "[", "]") or self.t[k].text == "=":
                return None
            k += 1
        if k >= stop:
            return None
        name = self.t[i - 2].text if i >= 2 and before.text == "=" and self.t[i - 2].kind == "word" else "lambda"
        close = end_of(self.t, k)
        code = Function(name, bool(self.c.source.caller & {self.t[i].line, self.t[i].line - 1}), True, self.code)
        body = Body(self.c, code)
        if parameters:
            body.parameters(parameters, k)
        body.block(k + 1, close)
        body.finish()
        return close + 1

# ---- files ------------------------------------------------------------------------------------------------

def check_text(file, text):
    return Checker(file, text, pathlib.Path(file).suffix not in (".c",)).run() if "t_" in text or "QUARRY_SCOPE" in text else []


def files_of(names):
    for name in names:
        path = pathlib.Path(name)
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
        elif path.is_file():
            yield path
        else:
            raise FileNotFoundError(name)


def check(names):
    return [f for path in files_of(names) for f in check_text(path, path.read_text(errors="replace"))]


def self_test():
    cases = {
        "no-scope": "void f(void) { use(t_new(int, 3)); }",
        "jumps-in": "void f(int x) { switch (x) { case 1: t_scope; use(t_new(int, 1)); break; case 2: use(t_new(int, 1)); } }",
        "escapes": "char *f(void) { t_scope; char *p = t_strdup(\"x\"); return p; }",
        "t-function": "char *t_f(void) { t_scope; return t_strdup(\"x\"); }",
    }
    clean = "char *t_f(void) { return t_strdup(\"x\"); } /* t_new(int, 1); */ int f(void) { t_scope; return *t_f(); }"
    for rule, text in cases.items():
        found = check_text("x.c", text)
        assert [f["rule"] for f in found] == [rule], (rule, found)
        long = re.sub(r"\bt_(scope|new|strdup)\b", lambda m: "QUARRY_SCOPE" + ("" if m[1] == "scope" else "_" + m[1].upper()), text)
        assert [f["rule"] for f in check_text("x.c", long)] == [rule] and long != text, (rule, long)
        assert check_text("x.c", text.replace("}", "/* scope: ok */ }", 1)) == [], rule
    assert check_text("x.c", clean) == [], check_text("x.c", clean)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "sub").mkdir()
        (pathlib.Path(folder) / "sub/x.cpp").write_text(cases["no-scope"])
        (pathlib.Path(folder) / "x.txt").write_text(cases["no-scope"])
        assert len(check([folder])) == 1
    # Whatever the text, it ends, and does not fail.
    for text in (clean, *cases.values()):
        for cut in range(len(text)):
            check_text("x.cpp", text[:cut])
            check_text("x.c", text[cut:])
    print(f"self-test: {len(cases)} rules failed as they should")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    names = [a for a in arguments if not a.startswith("-")]
    if [a for a in arguments if a.startswith("-") and a != "--json"]:
        print("usage: check_scopes.py [--json] [FILE|FOLDER...] | --self-test", file=sys.stderr)
        return 2
    if not names:
        root = pathlib.Path(__file__).resolve().parents[1]
        if not (root / "src/LAYERS").exists():
            print("check_scopes.py: which files or folders?", file=sys.stderr)
            return 2
        names = [root / folder for folder in OWN_FOLDERS]
    try:
        findings = check(names)
    except OSError as error:
        print(f"check_scopes.py: {error}", file=sys.stderr)
        return 2
    if "--json" in arguments:
        print(json.dumps(findings, indent=1))
    else:
        for f in findings:
            print(f"{f['file']}:{f['line']}: {f['function']}: {f['rule']}: {f['message']}")
        if not findings:
            print("scopes: clean")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
