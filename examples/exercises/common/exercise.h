// Included by exercises and their checks: gradus, todo() for the holes, and require.h for checks.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <gradus/autograd/diagnosis.h>
#include <gradus/distributed/distributed.h>
#include <gradus/gradus.h>
#include <gradus/training/memory_report.h>

#include "require.h"

/// Marks a hole, which the student replaces by code.
[[noreturn]] inline void todo(const std::string& what) { throw exercise::Todo(what); }
