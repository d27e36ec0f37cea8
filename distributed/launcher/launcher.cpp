#include <gradus/distributed/launcher/launcher.h>

#include <gradus/distributed/launcher/attempt.h>

namespace gradus::dist {

int launch(const LaunchOptions& options) {
  Job job(options);
  return run_attempt(job).code;
}

}  // namespace gradus::dist
