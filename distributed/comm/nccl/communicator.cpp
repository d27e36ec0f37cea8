#include <gradus/distributed/comm/nccl/communicator.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include <gradus/core/runtime/runtime.h>

namespace gradus::dist {
namespace {

/// How long ending a communicator may take.
constexpr Milliseconds kEndTime{5000};

/// Does the work on a new thread. Returns true if it has finished within `time`; otherwise the thread goes on alone.
bool within(Milliseconds time, int device, std::function<void()> work) noexcept {
  try {
    const auto done = std::make_shared<std::promise<void>>();
    const std::future<void> finished = done->get_future();
    std::thread([done, device, work = std::move(work)] {
      try {
        runtime(DeviceType::cuda).set_current_device(device);  // otherwise NCCL would initialise another device
        work();
      } catch (const std::exception&) {}  // the device has failed, so there is nothing left to end
      done->set_value();
    }).detach();
    return finished.wait_for(time) == std::future_status::ready;
  } catch (const std::exception&) {  // no thread could be started
    return false;
  }
}

/// Waits until a call of a non-blocking communicator has completed.
void settle(const char* call, ncclResult_t result, ncclComm_t communicator, int rank, const Deadline& deadline) {
  while (result == ncclInProgress || result == ncclSuccess) {
    GRADUS_NCCL_CHECK(ncclCommGetAsyncError(communicator, &result));
    if (result != ncclInProgress) break;
    GRADUS_CHECK(!deadline.passed(), CommError, call, ": rank ", rank, " waited ", deadline.timeout().count(),
                 " ms for the other ranks to connect by NCCL");
    std::this_thread::sleep_for(Milliseconds(1));
  }
  check_nccl(call, result);
}

}  // namespace

void check_nccl(const char* call, ncclResult_t result) {
  if (result == ncclSuccess || result == ncclInProgress) [[likely]]
    return;
  const char* last = ncclGetLastError(nullptr);
  GRADUS_FAIL(CommError, call, " failed: ", ncclGetErrorString(result), last != nullptr && *last != '\0' ? "; " : "",
              last != nullptr ? last : "", "; NCCL_DEBUG=INFO tells more");
}

int Communicator::version() {
  int version = 0;
  GRADUS_NCCL_CHECK(ncclGetVersion(&version));
  return version;
}

std::string Communicator::unique_id() {
  ncclUniqueId id;
  GRADUS_NCCL_CHECK(ncclGetUniqueId(&id));
  return {id.internal, sizeof id.internal};
}

Communicator::Communicator(const std::string& unique_id, int rank, int size, const Deadline& deadline)
    : device_(runtime(DeviceType::cuda).current_device()) {
  ncclUniqueId id;
  GRADUS_CHECK(unique_id.size() == sizeof id.internal, CommError, "rank 0 gave ", unique_id.size(),
               " bytes as the id of an NCCL communicator, whose ids have ", sizeof id.internal,
               ": do all ranks run the same version of NCCL?");
  std::memcpy(id.internal, unique_id.data(), unique_id.size());
  // Connecting may take forever, so it uses a non-blocking communicator. Each call of a non-blocking communicator
  // starts a thread, which is too slow for short collectives. Collectives therefore use a second, blocking
  // communicator, which is split off from the first.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t first = nullptr;
  try {
    const ncclResult_t begun = ncclCommInitRankConfig(&first, size, id, rank, &config);
    settle("ncclCommInitRankConfig", begun, first, rank, deadline);
    config.blocking = 1;
    const ncclResult_t split = ncclCommSplit(first, 0, rank, &communicator_, &config);
    settle("ncclCommSplit", split, first, rank, deadline);
    GRADUS_CHECK(communicator_ != nullptr, CommError, "ncclCommSplit made no communicator");
  } catch (const CommError&) {
    if (first != nullptr) {
      within(kEndTime, device_, [first] { ncclCommAbort(first); });
    }
    throw;
  }
  within(kEndTime, device_, [first] { ncclCommDestroy(first); });
}

Communicator::~Communicator() {
  if (ended_.exchange(true)) return;
  const bool ended = within(kEndTime, device_, [communicator = communicator_] {
    ncclCommFinalize(communicator);
    ncclCommDestroy(communicator);
  });
  if (!ended) std::fprintf(stderr, "gradus: an NCCL communicator does not end (is a captured graph using it?)\n");
}

std::string Communicator::error() const {
  if (ended_) return "";
  ncclResult_t result = ncclSuccess;
  GRADUS_NCCL_CHECK(ncclCommGetAsyncError(communicator_, &result));
  return result == ncclSuccess || result == ncclInProgress ? "" : ncclGetErrorString(result);
}

void Communicator::abort() noexcept {
  if (ended_.exchange(true)) return;
  const bool ended = within(kEndTime, device_, [communicator = communicator_] { ncclCommAbort(communicator); });
  if (!ended) std::fprintf(stderr, "gradus: ncclCommAbort does not return; its communicator is left behind\n");
}

}  // namespace gradus::dist
