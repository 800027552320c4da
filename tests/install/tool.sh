#!/bin/bash
# SPDX-License-Identifier: MIT
# tool.sh: manual pages and completions, as they are installed: every page parses and is found by its name, and each shell that this machine
# has completes a verb and an option.
set -euo pipefail
if [ ! -x "$QUARRY_BUILD_DIR/bin/quarry" ] || [ ! -d "$QUARRY_BUILD_DIR/share/man/man1" ]; then
    echo "SKIP: needs the tool (make tool)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset DESTDIR LD_PRELOAD MANPATH
prefix=$work/usr
cmake --install "$QUARRY_BUILD_DIR" --prefix "$prefix" >"$work/log"
quarry=$prefix/bin/quarry

failed=0
fail() {
    echo "FAILED: $*" >&2
    failed=1
}

echo "== manual pages"
verbs=$("$quarry" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -vx help)
[ "$(wc -w <<<"$verbs")" -ge 16 ] || fail "these are not all verbs: $verbs"
for name in quarry.1 $(printf 'quarry-%s.1 ' $verbs) quarry.7 libquarry.3; do
    page=$prefix/share/man/man${name##*.}/$name
    [ -s "$page" ] || { fail "$page is not installed"; continue; }
    if command -v mandoc >/dev/null; then
        # A page without a date is the same whenever it is made.
        { mandoc -T lint -W warning "$page" || true; } >"$work/lint"
        ! grep -v 'missing date' "$work/lint" || fail "mandoc does not like $name"
    fi
    if command -v groff >/dev/null; then
        groff -man -Tutf8 -ww "$page" >"$work/text" 2>"$work/warnings" || fail "groff cannot read $name"
        [ ! -s "$work/warnings" ] || { cat "$work/warnings"; fail "groff warns of $name"; }
        grep -q . "$work/text" || fail "$name is empty"
    fi
done
[ "$(find "$prefix/share/man" -type f | wc -l)" = "$(($(wc -w <<<"$verbs") + 3))" ] || fail "there are pages of other names"
if command -v man >/dev/null; then
    [ "$(man -M "$prefix/share/man" -w quarry-record)" = "$prefix/share/man/man1/quarry-record.1" ] || fail "man does not find quarry-record"
    text=$(MANWIDTH=80 man -M "$prefix/share/man" -P cat quarry-record | col -bx)
    for words in "quarry record [OPTIONS] <CMD>" "--follow" "EXAMPLES" "EXIT STATUS" "quarry(1)"; do
        grep -qF -- "$words" <<<"$text" || fail "man quarry-record does not say $words"
    done
    grep -q '^  *quarry record -- ./prog input   *to quarry.prog.PID.qtr$' <<<"$text" || fail "the examples are not as they were written"
fi

echo "== completions"
cat >"$work/bash" <<'END'
source "$1"
complete -p quarry >/dev/null || exit 1
COMP_WORDS=(quarry re) COMP_CWORD=1
_quarry quarry re quarry
echo "${COMPREPLY[@]}"
COMP_WORDS=(quarry record --fol) COMP_CWORD=2
_quarry quarry --fol record
echo "${COMPREPLY[@]}"
END
[ "$(bash --norc "$work/bash" "$prefix/share/bash-completion/completions/quarry")" = "record replay
--follow" ] || fail "completion in bash"
if command -v zsh >/dev/null; then
    # shellcheck disable=SC2016  # it is zsh that has these variables
    [ "$(zsh -fc 'fpath=($1 $fpath); autoload -Uz compinit; compinit -u -D; autoload +X _quarry; print $_comps[quarry] ${+functions[_quarry]}' \
        zsh "$prefix/share/zsh/site-functions")" = "_quarry 1" ] || fail "completion in zsh"
fi
if command -v fish >/dev/null; then
    for word in "re:record" "record --fol:--follow"; do
        # It reads the completions of commands that it finds.
        PATH=$prefix/bin:$PATH HOME=$work XDG_DATA_DIRS=$prefix/share:/usr/share fish -c "complete -C 'quarry ${word%:*}'" |
            cut -f 1 | grep -qx -- "${word#*:}" || fail "completion in fish: $word"
    done
fi
exit $failed
