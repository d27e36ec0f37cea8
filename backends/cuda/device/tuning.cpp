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

void WorkCounter::add_tiles(const TileWork& launch) {
  const int64_t multiprocessors = device_.multiprocessors;
  const int64_t busiest = ceil_div(launch.blocks, multiprocessors);
  const int64_t waves = ceil_div(launch.blocks, launch.resident * multiprocessors);
  const double steps = number(launch.blocks * launch.steps);
  const double multiply_adds = number(launch.steps) * number(launch.multiply_adds);
  work_[kMultiplyAdds] += number(busiest * multiprocessors) * multiply_adds / at_once_;
  work_[kSteps] += number(waves * launch.steps);
  work_[kTileBytes] += steps * number(launch.bytes);
  work_[kTileElements] += steps * number(launch.elements);
  work_[kWaves] += number(waves);
  work_[kBlocks] += number(busiest);
  work_[kLaunches] += 1;
}

}  // namespace gradus::cuda_detail
