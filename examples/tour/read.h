// SPDX-License-Identifier: MIT
// read.h: from files of /proc to numbers; what tour.c is made of.
#ifndef QUARRY_TOUR_READ_H
#define QUARRY_TOUR_READ_H

#include "tour.h"

// Where a figure is: group "status", "top", "all", "map" or "faults", its name, its place in tour_numbers. Ends with
// group NULL.
typedef struct tour_field {
    const char *group, *name;
    size_t at;
} tour_field;
extern const tour_field tour_fields[];

static inline long *tour_value(tour_numbers *numbers, const tour_field *field) {
    return (long *)((char *)numbers + field->at);
}

// Everything at this moment; `from` NULL: no mapping is watched.
void tour_measure(tour_numbers *numbers, const char *from, const char *to);

// Each mapping that lies in [from, to) in part, with its line of /proc/self/maps.
void tour_each_mapping(
    const void *from, const void *to, void (*each)(void *, const char *line, const tour_mapping *), void *with);

#endif
