// std::chrono's durations and clocks for public headers: <mutex> has them without the calendars and time zones of
// <chrono>, which take longer to compile than all of gradus's tensors.
#pragma once

#include <mutex>
