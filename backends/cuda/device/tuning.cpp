#include <gradus/backends/cuda/device/tuning.h>

#include <gradus/core/formulas/integers.h>

namespace gradus::cuda_detail {

const TuningTable& tuning_table() {
  static const TuningTable table(
#include <gradus/backends/cuda/tuning_table.txt>
  );
  return table;
}

KernelWork scaled_to(const DeviceProperties& device, const WorkParts& parts, KernelWork work) {
  for (size_t i = 0; i < kMaxWorkParts && parts[i].name; ++i) {
    if (parts[i].limit == WorkLimit::multiply_adds) work[i] *= kH200.multiply_adds_per_us / device.multiply_adds_per_us;
    if (parts[i].limit == WorkLimit::bytes) work[i] *= kH200.bytes_per_us / device.bytes_per_us;
  }
  return work;
}

void WorkCounter::add_tiles(const TileWork& tiles) {
  const int64_t multiprocessors = device_.multiprocessors;
  const int64_t busiest = ceil_div(tiles.blocks, multiprocessors);
  const int64_t waves = ceil_div(tiles.blocks, tiles.resident * multiprocessors);
  const auto steps = static_cast<double>(tiles.blocks * tiles.steps);
  const auto multiply_adds = static_cast<double>(tiles.steps) * static_cast<double>(tiles.multiply_adds);
  work_[kMultiplyAdds] += static_cast<double>(busiest * multiprocessors) * multiply_adds / at_once_;
  work_[kSteps] += static_cast<double>(waves * tiles.steps);
  work_[kTileBytes] += steps * static_cast<double>(tiles.bytes);
  work_[kTileElements] += steps * static_cast<double>(tiles.elements);
  work_[kWaves] += static_cast<double>(waves);
  work_[kBlocks] += static_cast<double>(busiest);
}

}  // namespace gradus::cuda_detail
