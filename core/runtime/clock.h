// std::chrono durations and clocks for public headers. <mutex> declares them without the calendars and time zones of
// <chrono>, which take longer to compile than all of gradus's tensor headers.
#pragma once

#include <mutex>
