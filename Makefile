# SPDX-License-Identifier: MIT
# A thin front: CMake and cargo do the work, scripts/ the checks. Everything lands in build/.
#
#   make                 libraries to build/lib, the tool to build/bin/quarry
#   make run [CMD=...]   compare allocators on a program (default: an SQL load)
#   make test            all tests and checks
#   make torture         the tests that take long
#   make bench           the benchmarks
#   make bench-instructions  instructions of the fast paths, beside those that are expected
#   make docs            the chapters of the tour with the figures of this machine, to build/docs/tour.html
#   make site            the documents, the API and the tour as static pages with search, to build/site/html (fetches MkDocs)
#   make peers           the newest of other mallocs, to compare with (fetches their sources)
#   make bench-suite SUITE=DIR [ARGS=...]   the field's usual suite, built in DIR, under all of them
#   make bench-real [ARGS=...]  real programs, as installed, under all of them
#   make bench-targets [SUITE=DIR] [ARGS=...]  what the heap is to reach, and by how much it is missed
#   make install [PREFIX=/usr/local] [DESTDIR=], make uninstall with the same
#   make package         the same as a .deb and a .tar.zst, to build/packages
#   make format, make lint, make clean
PREFIX ?= /usr/local
CMD ?= sqlite3 :memory: ".read examples/run/load.sql"

# Where rustup puts cargo, for shells that have not been told.
export PATH := $(PATH):$(HOME)/.cargo/bin
export CARGO_TARGET_DIR := $(CURDIR)/build/cargo

.PHONY: all libs everything tool run test torture bench bench-suite bench-real bench-targets docs site peers licences install uninstall package format lint clean
.NOTPARALLEL:

# Both at once: cargo ends with crates that keep one processor busy, and the libraries have the other.
all:
	@scripts/setup.sh build
	@$(MAKE) --no-print-directory libs & libs=$$!; $(MAKE) --no-print-directory tool; tool=$$?; wait $$libs && exit $$tool
ifeq ($(filter-out all,$(MAKECMDGOALS)),)
	@[ $(MAKELEVEL) != 0 ] || printf '%s\n' "ready: build/bin/quarry, and build/lib/libquarry-malloc.so for LD_PRELOAD" "next:  export PATH=$$PWD/build/bin:\$$PATH; quarry --help; docs/quickstart.md"
endif

libs:
	@scripts/setup.sh build
	@[ -f build/build.ninja ] || cmake --preset release $(CONFIGURE)
	@cmake --build build --target product

# The same, with the tests and benchmarks.
everything: all
	@cmake --build build

tool:
	@cargo build --release --manifest-path tools/Cargo.toml
	@mkdir -p build/bin && cp -u --remove-destination build/cargo/release/quarry build/bin/quarry
	@rm -rf build/share/man/man1 && build/bin/quarry man build/share/man/man1
	@mkdir -p build/share/bash-completion/completions build/share/zsh/site-functions build/share/fish/vendor_completions.d
	@build/bin/quarry completions bash >build/share/bash-completion/completions/quarry
	@build/bin/quarry completions zsh >build/share/zsh/site-functions/_quarry
	@build/bin/quarry completions fish >build/share/fish/vendor_completions.d/quarry.fish

run:
	@scripts/setup.sh run
	@$(MAKE) --no-print-directory all
	@build/bin/quarry compare -n 5 -- $(CMD)

test:
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory all CONFIGURE=-DQUARRY_WERROR=ON
	@scripts/test.py

torture:
	@scripts/setup.sh torture
	@$(MAKE) --no-print-directory everything licences
	ctest --test-dir build -L torture --output-on-failure --no-tests=error
	@scripts/test.py tidy-deep
	@scripts/fuzz.sh 300 trace || [ $$? = 77 ]

# Ten scenarios, each of which leans on one thing that a malloc must do well.
TEN = small-churn lists tree medium large vectors producer-consumer handover mt-churn phases

# Instructions on the fast paths, scenarios, then real programs, under every allocator installed.
bench:
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory everything bench-instructions
	@build/bin/quarry bench --full -n 5 $(TEN)
	@for load in bench/loads/*.sh; do echo; echo "== $$load"; build/bin/quarry compare -n 10 -- $$load || exit 1; done

# Ratios to the best peer of each run, in time and in memory; quarry bench suite --help has the options for ARGS.
bench-suite: all
	@[ -n "$(SUITE)" ] || { echo "make bench-suite SUITE=DIR: the folder where mimalloc-bench was built"; exit 2; }
	@build/bin/quarry bench suite $(SUITE) $(ARGS)

bench-real: all
	@build/bin/quarry bench suite --real $(ARGS)

bench-targets: all
	@build/bin/quarry bench suite --targets $(SUITE) $(ARGS)

# Exact, so also a test: what differs from bench/fastpath/expected.json is marked, and ends this with an error.
bench-instructions: libs
	@cmake --build build --target bench_instructions

# Of a real run, so different each time: it is built, and not a part of the tree.
docs: all
	@mkdir -p build/docs
	@build/bin/quarry tour -o build/docs/tour.html
	@echo build/docs/tour.html

# It fetches MkDocs with its theme once; the pages need no network. A dead link ends it. The tour is on it if `make docs` has run.
build/site/venv/done: scripts/site-requirements.txt
	@python3 -m venv build/site/venv
	@build/site/venv/bin/pip install -q -r $<
	@touch $@

site: build/site/venv/done
	@scripts/site.py build/site/source
	@build/site/venv/bin/mkdocs build -q --strict -f build/site/source/mkdocs.yml -d $(CURDIR)/build/site/html
	@echo build/site/html/index.html

# Optional: with them, benchmarks have more columns.
peers: libs
	@scripts/peers.py

licences: tool
	@scripts/licences.py build/share/third-party.txt

install: all licences
	cmake --install build --prefix $(PREFIX)

uninstall:
	@scripts/uninstall.sh $(PREFIX)

package: all licences
	@scripts/setup.sh package
	@cpack --config build/CPackConfig.cmake -B build/packages
	@rm -rf build/packages/_CPack_Packages

format:
	@scripts/test.py --files | xargs clang-format -i
	@cargo fmt --manifest-path tools/Cargo.toml --all

lint:
	@scripts/setup.sh test
	@scripts/test.py format tidy rules rustfmt clippy

clean:
	rm -rf build build-*
