#include <gradus/distributed/launcher/line_writer.h>

#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include <gradus/core/error.h>
#include <gradus/distributed/comm/tcp/socket.h>

namespace gradus::dist {

size_t write_all(int descriptor, std::string_view text) {
  const size_t size = text.size();
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    pollfd entry = {descriptor, POLLOUT, 0};
    if (written >= 0) text.remove_prefix(static_cast<size_t>(written));
    else if (errno == EAGAIN) poll(&entry, 1, -1);  // another process made the descriptor non-blocking
    else if (errno != EINTR) break;
  }
  return size - text.size();
}

struct LineWriter::State {
  explicit State(int descriptor) : descriptor(descriptor) {}

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopped || !blocks.empty(); });
      if (stopped) return;
      const std::string block = std::move(blocks.front());
      blocks.pop_front();
      lock.unlock();
      const size_t written = write_all(descriptor, block);
      const int error = errno;
      lock.lock();
      if (stopped) return;
      if (written < block.size()) cause = std::strerror(error);
      lost += block.size() - written;
      completed += block.size();
      waiting -= block.size();
      if (waiting == 0) eventfd_write(emptied.number(), 1);
    }
  }

  const int descriptor;
  const FileDescriptor emptied{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> blocks;  // each of whole lines
  size_t waiting = 0, completed = 0, lost = 0;
  std::string cause;  // why bytes were lost
  bool stopped = false;
};

LineWriter::LineWriter(int descriptor) : state_(std::make_shared<State>(descriptor)) {
  GRADUS_CHECK(state_->emptied, CommError, "no descriptor is left to write output with");
  std::thread([state = state_] { state->run(); }).detach();
}

LineWriter::~LineWriter() { give_up(""); }

void LineWriter::put(std::string_view line) {
  const std::lock_guard lock(state_->mutex);
  if (state_->stopped) {
    state_->lost += line.size();
    return;
  }
  std::deque<std::string>& blocks = state_->blocks;
  // A block has as many lines as a pipe keeps together, whatever other processes write to it.
  if (blocks.empty() || blocks.back().size() + line.size() > PIPE_BUF) blocks.emplace_back();
  blocks.back() += line;
  state_->waiting += line.size();
  state_->changed.notify_one();
}

size_t LineWriter::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting;
}

size_t LineWriter::completed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->completed;
}

int LineWriter::emptied() const { return state_->emptied.number(); }

void LineWriter::acknowledge() {
  eventfd_t count = 0;
  eventfd_read(emptied(), &count);
}

void LineWriter::give_up(std::string_view cause) {
  const std::lock_guard lock(state_->mutex);
  state_->cause = cause;
  state_->lost += std::exchange(state_->waiting, 0);
  state_->blocks.clear();
  state_->stopped = true;
  state_->changed.notify_one();
}

std::string LineWriter::losses(std::string_view what) const {
  const std::lock_guard lock(state_->mutex);
  if (state_->lost == 0) return "";
  return std::to_string(state_->lost) + " bytes of " + std::string(what) + " were lost: " + state_->cause;
}

}  // namespace gradus::dist
