#!/bin/bash
# SPDX-License-Identifier: MIT
# A scripting language: hashes and arrays of strings that grow, are sorted and die together.
#   perl.sh [--rounds N]
export PERL_HASH_SEED=0
[ "${1-}" = --rounds ] && shift
exec perl -e '
my ($seed, $sum) = (1, 0);
for my $round (1 .. $ARGV[0]) {
    my %words;
    for (1 .. 60000) {
        $seed = ($seed * 1103515245 + 12345) & 0x7fffffff;
        push @{$words{"word " . $seed % 20000}}, "x" x ($seed % 200);
    }
    for my $word (sort keys %words) {
        $sum += length join ",", reverse @{$words{$word}};
    }
}
print "$sum\n";
' "${1-6}"
