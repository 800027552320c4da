# SPDX-License-Identifier: MIT
"""What a function has open and declared, and where its pointers go. For check_scopes.py."""
import re

from scopes_text import CLOSERS, CONTROL, after_template, end_of

OUTLIVES = "which outlives the scope; copy it, or allocate in a frame or pool that lives as long"
NOT_TYPES = CONTROL | {"return", "goto", "else", "do", "case", "default", "break", "continue", "sizeof", "new",
                       "delete", "throw", "using", "typedef", "co_return", "co_await", "co_yield",
                       "public", "private", "protected", "try"}
NO_USE = {"t_scope", "t_seal", "t_unseal"}  # they allocate nothing
POINTERS = re.compile(r"t_(new|dup|strdup|printf|fmt|vprintf)")  # macros that return what they allocate


class Scope:
    def __init__(self, line):
        self.line, self.open = line, True


class Variable:
    def __init__(self, pointer=False, outlives=None, deep=False):
        self.pointer, self.outlives = pointer, outlives  # outlives: why memory reached by it stays
        self.deep = deep                                 # points to a pointer
        self.scope = self.source = None                  # what it points to ends with this scope


class Block:
    def __init__(self):
        self.scopes, self.variables, self.switch = [], {}, False


class Function:
    """A function, a lambda, or what else has code. `outer`: the function it stands in."""

    def __init__(self, name, marked, pointer, outer=None):
        self.name, self.outer, self.pointer = name, outer, pointer
        self.is_t = marked or name.split("::")[-1].startswith("t_")
        self.blocks, self.stores, self.gotos, self.labels = [Block()], {}, [], {}

    def scopes(self):
        inherited = self.outer.scopes() if self.outer else []
        return inherited + [s for b in self.blocks for s in b.scopes]

    def own_scope(self):
        own = [s for b in self.blocks for s in b.scopes]
        return own[-1] if own else None

    def variable(self, name):
        for b in reversed(self.blocks):
            if name in b.variables:
                return b.variables[name]
        return self.outer.variable(name) if self.outer else None


class Pointers:
    """The part of Body (check_scopes.py) that follows pointers: what a variable points to, and whether it leaves."""

    @property
    def t(self):
        return self.c.t

    def is_call(self, i, stop):
        if i + 1 >= len(self.t):
            return False
        if self.t[i + 1].text == "(":
            return True
        if self.c.cxx and self.t[i + 1].text == "<":
            behind = after_template(self.t, i + 1, stop)
            return behind is not None and behind < stop and self.t[behind].text == "("
        return False

    def rule(self):
        return "t-function" if self.code.is_t else "escapes"

    def unwrapped(self, at, stop):
        """Without parentheses and casts around."""
        while at < stop:
            if self.t[at].text == "(":
                close = end_of(self.t, at)
                if close == stop - 1:
                    at, stop = at + 1, stop - 1
                    continue
                inside = self.t[at + 1:close]
                type_like = inside and all(x.kind == "word" or x.text in ("*", "::", "<", ">") for x in inside)
                if type_like and close + 1 < stop and (inside[-1].text == "*" or self.t[close + 1].kind == "word"):
                    at = close + 1
                    continue
            if self.c.cxx and self.t[at].text in ("static_cast", "reinterpret_cast", "const_cast", "dynamic_cast"):
                k = at
                while k < stop and self.t[k].text != "(":
                    k += 1
                if k < stop and end_of(self.t, k) == stop - 1:
                    at, stop = k + 1, stop - 1
                    continue
            break
        return at, stop

    def pointer_in(self, at, stop, known_pointer):
        """(scope, from what) if this expression's value points into a scope of this function, else None."""
        at, stop = self.unwrapped(at, stop)
        if at >= stop:
            return None
        question = self.top_level(at, stop, ("?",))
        if question is not None:
            colon = self.top_level(question + 1, stop, (":",))
            if colon is None:
                return None
            return self.pointer_in(question + 1, colon, known_pointer) or self.pointer_in(colon + 1, stop, known_pointer)
        if self.top_level(at, stop, ("==", "!=", "<", ">", "<=", ">=", "&&", "||", "!")) is not None:
            return None
        word = self.t[at]
        if word.kind == "word" and word.text.startswith("t_") and self.is_call(at, stop) and word.text not in NO_USE:
            scope = self.code.own_scope()
            ends = end_of(self.t, at + 1) if self.t[at + 1].text == "(" else stop - 1
            if scope and ends == stop - 1 and (POINTERS.match(word.text) or known_pointer and word.text != "t_pool"):
                return scope, word.text
            return None
        if word.text == "&" and at + 1 < stop and self.t[at + 1].kind == "word":
            if at + 2 < stop and self.t[at + 2].text in ("[", "->"):
                return self.tainted(self.t[at + 1].text)
            return None
        if word.kind == "word" and (at + 1 == stop or self.t[at + 1].text in ("+", "-")):
            minus = self.top_level(at, stop, ("-",))
            if minus is not None and minus + 1 < stop and self.code.variable(self.t[minus + 1].text):
                return None  # a difference
            return self.tainted(word.text)
        return None

    def tainted(self, name):
        v = self.code.variable(name)
        return (v.scope, v.source) if v and v.scope else None

    def top_level(self, at, stop, texts):
        while at < stop:
            if self.t[at].text in texts and self.t[at].kind == "punct":
                return at
            at = end_of(self.t, at) + 1 if self.t[at].text in CLOSERS else at + 1
        return None

    def of_this_function(self, scope):
        return any(s is scope for b in self.code.blocks for s in b.scopes) or not scope.open

    def returned(self, at, stop):
        if not self.code.pointer:
            return
        what = self.pointer_in(at + 1, stop, True)
        if what and self.of_this_function(what[0]):
            advice = "let the caller open the scope and name this function t_, or copy it elsewhere"
            if self.code.is_t:
                advice = "open the scope in the caller only, as the name t_ says"
            self.c.found(self.t[at], self.code, self.rule(), f"what {what[1]} allocated ends here with the t_scope of line {what[0].line}; {advice}")

    def assigned(self, at, stop):
        """left = right, and t_renew(&left, ...)"""
        for i in range(at, stop):
            if re.match(r"t_renew", self.t[i].text) and i + 3 < stop and [self.t[i + 1].text, self.t[i + 2].text] == ["(", "&"] and self.t[i + 4].text == ",":
                self.assign(i + 3, i + 4, (self.code.own_scope(), self.t[i].text) if self.code.own_scope() else None)
        equal = self.top_level(at, stop, ("=",))
        if equal is None or equal == at:
            return
        left = equal
        while left > at and (self.t[left - 1].text in ("]", ")") or self.t[left - 1].kind == "word" or self.t[left - 1].text in (".", "->", "*", "::")):
            left = self.t[left - 1].match if self.t[left - 1].text in ("]", ")") and self.t[left - 1].match is not None else left - 1
        name = self.t[equal - 1]
        v = self.code.variable(name.text) if name.kind == "word" else None
        # a = b = t_new(): each of them
        right = equal + 1
        following = self.top_level(right, stop, ("=",))
        if following is not None:
            self.assigned(right, stop)
            right = following + 1
        known = v.pointer if v else True
        self.assign(left, equal, self.pointer_in(right, stop, known))

    def keeps_pointers(self, v, member, is_variable):
        """Or is it a std::string, which copies? In C whatever takes a pointer keeps it."""
        if not self.c.cxx:
            return True
        if member:
            return member in self.c.members and self.c.members[member].pointer
        return v is None or (v.pointer if is_variable else v.deep)

    def assign(self, left, equal, what):
        """The lvalue in [left, equal) now holds `what`: (scope, source), or None."""
        t, key = self.t, "".join(x.text for x in self.t[left:equal])
        name = t[equal - 1]
        is_member = equal - 1 > left and t[equal - 2].text in (".", "->", "::")
        is_variable = name.kind == "word" and not is_member and not (t[left].text == "*" and self.is_store(left))
        if is_variable:
            v, key = self.code.variable(name.text), name.text
            if not self.keeps_pointers(v or self.c.globals.get(name.text), None, True):
                what = None
            if v and v.outlives not in ("a static variable", "a reference"):
                v.scope, v.source = what or (None, None)
                return
            if not v:
                v = self.c.globals.get(name.text)
            reason = v.outlives if v else None
        else:
            root = next((x for x in t[left:equal] if x.kind == "word"), None)
            v = self.code.variable(root.text) if root else None
            if root and root.text == "this":
                reason = "the object"
            else:
                v = v or (self.c.globals.get(root.text) if root else None)
                reason = v.outlives if v else None
            if not self.keeps_pointers(v, name.text if is_member else None, False):
                what = None
        if what is None:
            self.code.stores.pop(key, None)
        elif reason and self.of_this_function(what[0]):
            self.code.stores[key] = (t[left], key, reason, what)

    def is_store(self, left):
        """*out = ..., not the declaration T *out = ..."""
        before = self.t[left - 1] if left else None
        return before is None or not (before.kind == "word" and before.text not in NOT_TYPES or before.text in (">", "*", ","))

    def finish(self):
        for token, key, reason, (scope, source) in self.code.stores.values():
            self.c.found(token, self.code, self.rule(), f"{key} keeps what {source} allocated under the t_scope of line {scope.line}, in {reason}, {OUTLIVES}")
        for token, label, scopes in self.code.gotos:
            if label in self.code.labels:
                missing = [s for s in self.code.labels[label][1] if s not in scopes]
                if missing:
                    self.c.found(token, self.code, "jumps-in", f"label {label} is behind the t_scope of line {missing[0].line}, which this jump passes by")
