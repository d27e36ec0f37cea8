#include <gradus/examples/common/progress.h>

#include <unistd.h>

#include <cstdio>
#include <string>

Progress::Progress(int epoch, int epochs, int64_t images, double seconds, bool quiet)
    : epoch_(epoch), epochs_(epochs), images_(images), quiet_(quiet), terminal_(isatty(STDOUT_FILENO)),
      start_(Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

bool Progress::due() const {
  return !quiet_ && Clock::now() - last_ > (terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5));
}

void Progress::show(int64_t done, double loss) {
  last_ = Clock::now();
  const double share = static_cast<double>(done) / static_cast<double>(images_);
  const double left = seconds() * (1 - share) / share;
  char text[128];
  std::snprintf(text, sizeof text, "%3.0f %%  loss %.4f  %.0f images/s  %d:%02d left", 100 * share, loss,
                static_cast<double>(done) / seconds(), static_cast<int>(left) / 60, static_cast<int>(left) % 60);
  if (terminal_) {
    constexpr int kWidth = 28;
    std::string bar(kWidth, ' ');
    bar.replace(0, static_cast<size_t>(share * kWidth), static_cast<size_t>(share * kWidth), '=');
    std::printf("\r\033[Kepoch %d/%d [%s] %s", epoch_, epochs_, bar.c_str(), text);
  } else {
    std::printf("epoch %d/%d  %s\n", epoch_, epochs_, text);
  }
  std::fflush(stdout);
}

void Progress::finish() {
  if (!quiet_ && terminal_) std::printf("\r\033[K");
}

double Progress::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
