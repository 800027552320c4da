// SPDX-License-Identifier: MIT
// growth.h: before the page layer has more pages than ever, free ones go back instead.
//
// Free pages wait some time for the next who needs them (purge.h). Who needs pages where these do not fit would raise the peak
// while they serve nobody. So as many go back as come new once the page layer has as many as it ever had; below that nothing is
// done. Where it has none, they come from the ends of huge objects that were freed. A page that goes back and is needed again costs a fault more: where much is freed and allocated in large pieces that would
// be most of the time, so there is only so much of it per second.
#ifndef QY_HEAP_GROWTH_H
#define QY_HEAP_GROWTH_H

// Units were taken. Under the lock of the page layer, which is let go meanwhile, perhaps. A few instructions, mostly.
void qy_growth_of_units(void);

// Units became free. Once half of what was touched at most is free, a program ends, or a phase of it, and what comes next may not ask
// here: the exit handlers of libraries touch their pages, files are mapped. Were nothing given back, that would be the peak. So a small
// part goes at once, and again only when there was half as much more. Under the lock of the page layer, which is let go meanwhile,
// perhaps. A few instructions, mostly.
void qy_growth_undone(void);

#endif
