# SPDX-License-Identifier: MIT
# Run by CPack when everything is installed in a folder of its own and not yet packed: what Debian wants otherwise.
set(usr ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr)
set(doc ${usr}/share/doc/quarry)

# dpkg has its own list, and Debian's zsh its own folder.
file(REMOVE ${usr}/share/quarry/manifest.txt)
file(MAKE_DIRECTORY ${usr}/share/zsh/vendor-completions)
file(RENAME ${usr}/share/zsh/site-functions/_quarry ${usr}/share/zsh/vendor-completions/_quarry)
file(REMOVE_RECURSE ${usr}/share/zsh/site-functions)

# The copyright: ours, then where that of others is.
file(READ ${doc}/LICENSE license)
file(REMOVE ${doc}/LICENSE)
file(WRITE ${doc}/copyright
"${license}
The command line tool, /usr/bin/quarry, contains libraries of others. Their
names, authors and licences are in /usr/share/doc/quarry/third-party.txt.
")
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${doc}/changelog
"quarry (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Version ${CPACK_PACKAGE_VERSION}.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")

# -n: without a time of day, so that the same sources give the same package.
file(GLOB manuals ${usr}/share/man/man?/*)
execute_process(COMMAND gzip -9n ${doc}/changelog ${manuals} COMMAND_ERROR_IS_FATAL ANY)
