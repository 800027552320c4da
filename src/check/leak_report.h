// SPDX-License-Identifier: MIT
// leak_report.h: what a scan found, into the file of reports or as text.
#ifndef QY_CHECK_LEAK_REPORT_H
#define QY_CHECK_LEAK_REPORT_H

#include "check/leak_scan.h"

typedef struct qy_leak_told {
    uint64_t number;  // of the scan, in this process
    const char *at;   // exit, demand, interval
    uint64_t pause_ns, total_ns;
    bool show_reachable;
} qy_leak_told_t;

void qy_leak_report(const qy_leak_scan_t *scan, const qy_leak_told_t *told);
// A site that grows, and its bytes some scans ago.
void qy_leak_report_growing(const qy_leak_site_t *site, uint64_t before, const qy_leak_told_t *told);

#endif
