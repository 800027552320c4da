#!/bin/bash
# SPDX-License-Identifier: MIT
# uninstall.sh PREFIX: remove what `make install` put there, by the list that it left (share/quarry/manifest.txt).
#
# Files that somebody else put into our folders stay, and their folders with them. DESTDIR is obeyed.
set -euo pipefail
prefix=${DESTDIR-}${1:?usage: uninstall.sh PREFIX}
manifest=$prefix/share/quarry/manifest.txt
if [ ! -r "$manifest" ]; then
    echo "uninstall: $manifest is not there: nothing was installed in $prefix, or by an older version" >&2
    exit 1
fi
cd "$prefix"
mapfile -t files <share/quarry/manifest.txt
rm -f -- "${files[@]}"

# Folders of ours are those that are called quarry, and all below one. Deeper ones come first.
printf '%s\n' "${files[@]%/*}" | awk '{
    while ($0 ~ /(^|\/)quarry(\/|$)/) {
        print
        if (!sub(/\/[^\/]*$/, "")) break
    }
}' | sort -ru | while read -r folder; do
    rmdir -- "$folder" 2>/dev/null || [ ! -d "$folder" ] || echo "uninstall: $folder is not empty, and stays" >&2
done
