#include <gradus/data/data_loader.h>

namespace gradus::data::detail {

void check_options(const DataLoaderOptions& options) {
  constexpr size_t kMostWorkers = 1024;
  GRADUS_CHECK(options.batch_size() > 0, ValueError, "batch_size must be at least 1");
  GRADUS_CHECK(options.workers() <= kMostWorkers, ValueError, "at most ", kMostWorkers, " workers, got ",
               options.workers());
  GRADUS_CHECK(options.workers() == 0 || options.max_jobs() > 0, ValueError, "max_jobs must be at least 1");
}

}  // namespace gradus::data::detail
