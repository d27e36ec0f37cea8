// What the estimates of all families are made of (core/kernel_choice.h): the tuning table of this backend, and the work
// of register tiles.
#pragma once

#include <algorithm>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/kernel_choice.h>

namespace gradus::openmp_detail {

// ---- cpu_isa.cpp ----
/// tuning_table.txt, and the file that GRADUS_TUNING names.
const TuningTable& tuning_table();
/// The devices of the table, by CpuIsa.
std::vector<std::string> tuned_devices();
/// The kernels of a device. Throws a ValueError if there is no such device.
const KernelTable& table_of_device(const std::string& device);

inline double number(int64_t count) { return static_cast<double>(count); }

/// The part of the work that the busiest thread has if threads take turns with chunks of `grain` of `count` items, of
/// which the last may be smaller. There are `copies` of each chunk, one after another.
inline double share_of(int64_t threads, int64_t count, int64_t grain = 1, int64_t copies = 1) {
  const int64_t chunks = ceil_div(count, grain) * copies, turns = ceil_div(chunks, threads);
  // The number of smaller chunks that the busiest thread has. If it is the only one with a chunk in the last turn, it
  // has the most of them.
  const int64_t smaller = turns * threads - chunks == threads - 1 ? ceil_div(copies, threads) : copies / threads;
  return count > 0 ? number(turns * grain - smaller * (chunks / copies * grain - count)) / number(count * copies) : 1;
}

constexpr double kFirstLevelBytes = 32 << 10, kSecondLevelBytes = 1 << 20;  // of the caches
/// The part of `bytes` that does not fit in the first-level cache if all are read again and again.
inline double beyond_first_level(double bytes) { return std::max(0.0, bytes - kFirstLevelBytes); }
/// The same for the second-level cache.
inline double far_bytes(double bytes) { return std::max(0.0, bytes - kSecondLevelBytes); }

/// Multiply-adds of vectors in a step along the depth of a register tile. The processor starts two instructions per
/// cycle, and one that adds to the same sum only four cycles later; loads of both operands can take longer.
inline double tile_step(double rows, double vectors) {
  constexpr double kInFlight = 8;
  return std::max({rows * vectors, rows + vectors, kInFlight});
}
/// The multiply-adds of all tiles of `rows` by `columns` sums in a step along the depth.
inline double tile_steps(const Registers& tile, int64_t tile_rows, int64_t rows, int64_t columns) {
  const double panels = number(ceil_div(rows, tile_rows)), height = number(rows) / panels;
  const int64_t rest = columns % tile.columns;
  return panels * (number(columns / tile.columns) * tile_step(height, 2) +
                   (rest > 0 ? tile_step(height, rest > tile.vector ? 2 : 1) : 0));
}
inline double tile_count(const Registers& tile, int64_t tile_rows, int64_t rows, int64_t columns) {
  return number(ceil_div(rows, tile_rows) * ceil_div(columns, tile.columns));
}

}  // namespace gradus::openmp_detail
