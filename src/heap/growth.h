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

#endif
