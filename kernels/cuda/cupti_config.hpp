// Whether this translation unit can see the CUPTI headers. Records, decoder, messages and metric tables need none; sessions do.
#pragma once

#if __has_include(<cupti.h>) && __has_include(<cupti_range_profiler.h>)
#define FATHOM_CUPTI_HEADERS 1
#else
#define FATHOM_CUPTI_HEADERS 0
#endif
