#include <gradus/distributed/launcher/launcher.h>

#include <gradus/distributed/launcher/attempt.h>

namespace gradus::dist {

int launch(const LaunchOptions& options) {
  Job job(options);
  Outcome outcome;
  int attempt = 0;
  do outcome = run_attempt(job, attempt++);
  while (outcome.restart);
  return outcome.code;
}

}  // namespace gradus::dist
