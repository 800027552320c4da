# SPDX-License-Identifier: MIT
# A load for an interpreter: hashes and arrays of strings that grow, are sorted and die together. How many rounds: the argument.
my ($seed, $sum) = (1, 0);
for my $round (1 .. $ARGV[0]) {
    my %words;
    for (1 .. 60000) {
        $seed = ($seed * 1103515245 + 12345) & 0x7fffffff;
        push @{$words{"word " . $seed % 20000}}, "x" x ($seed % 200);
    }
    $sum += length join ",", reverse @{$words{$_}} for sort keys %words;
}
print "$sum\n";
