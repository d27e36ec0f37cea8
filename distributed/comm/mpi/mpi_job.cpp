#include <gradus/distributed/comm/mpi/mpi_job.h>

#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include <gradus/core/error.h>

namespace gradus::dist {
namespace {

bool is_finalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

void finalize(int exit_code, void* = nullptr) {
  if (exit_code == 0 && !is_finalized()) MPI_Finalize();
}

void initialize() {
  GRADUS_CHECK(!is_finalized(), CommError, "this program has called MPI_Finalize, after which MPI cannot be used");
  int initialized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized) {
    GRADUS_MPI_CHECK(MPI_Query_thread(&level));
    GRADUS_CHECK(level >= MPI_THREAD_MULTIPLE, CommError,
                 "this program has initialised MPI without support for several threads: call MPI_Init_thread with "
                 "MPI_THREAD_MULTIPLE, or leave the initialisation to init_process_group");
    return;
  }
  GRADUS_MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
  on_exit(finalize, nullptr);
  GRADUS_CHECK(level >= MPI_THREAD_MULTIPLE, CommError,
               "this MPI library cannot be called by several threads "
               "(MPI_THREAD_MULTIPLE): install one that can, or take the backend 'tcp'");
}

}  // namespace

void check_mpi(const char* call, int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  const std::string_view name(call);
  GRADUS_FAIL(CommError, name.substr(0, name.find('(')), " failed: ", std::string(text));
}

MpiJob& MpiJob::get(Milliseconds timeout) {
  static MpiJob* job = new MpiJob(timeout);  // never destroyed, because static objects may hold groups
  return *job;
}

MpiJob::MpiJob(Milliseconds timeout) {
  initialize();
  static MPI_Comm communicator = MPI_COMM_NULL;  // both survive a failed attempt, and the next attempt continues
  static MPI_Request request = MPI_REQUEST_NULL;
  if (communicator == MPI_COMM_NULL && request == MPI_REQUEST_NULL)
    GRADUS_MPI_CHECK(MPI_Comm_idup(MPI_COMM_WORLD, &communicator, &request));
  const Deadline deadline(timeout);
  for (int done = 0; true; std::this_thread::sleep_for(Milliseconds(1))) {
    GRADUS_MPI_CHECK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done) break;
    GRADUS_CHECK(!deadline.passed(), CommError, "waited ", timeout.count(),
                 " ms for all processes of the MPI job to call init_process_group");
  }
  communicator_ = communicator;
  GRADUS_MPI_CHECK(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN));
  GRADUS_MPI_CHECK(MPI_Comm_rank(communicator_, &rank_));
  GRADUS_MPI_CHECK(MPI_Comm_size(communicator_, &size_));
  void* largest = nullptr;
  int found = 0;
  GRADUS_MPI_CHECK(MPI_Comm_get_attr(communicator_, MPI_TAG_UB, &largest, &found));
  largest_tag_ = found ? *static_cast<int*>(largest) : 32767;  // the minimum that MPI guarantees
}

void MpiJob::post(int rank, int tag, io::Bytes bytes) {
  const std::lock_guard lock(mutex_);
  if (is_finalized()) return;
  forget_sent();
  Sending& sending = sending_.emplace_back(Sending{std::move(bytes)});
  GRADUS_MPI_CHECK(MPI_Isend(sending.bytes.data(), static_cast<int>(sending.bytes.size()), MPI_BYTE, rank, tag,
                             communicator_, &sending.request));
}

void MpiJob::flush(Milliseconds timeout) {
  for (const Deadline deadline(timeout); !deadline.passed(); std::this_thread::yield()) {
    const std::lock_guard lock(mutex_);
    if (is_finalized()) return;
    forget_sent();
    if (sending_.empty()) return;
  }
}

void MpiJob::forget_sent() {
  for (auto sending = sending_.begin(); sending != sending_.end();) {
    int done = 0;
    GRADUS_MPI_CHECK(MPI_Test(&sending->request, &done, MPI_STATUS_IGNORE));
    sending = done ? sending_.erase(sending) : std::next(sending);
  }
}

std::optional<MpiJob::Posted> MpiJob::next(int tag) const {
  int found = 0, bytes = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  GRADUS_MPI_CHECK(MPI_Improbe(MPI_ANY_SOURCE, tag, communicator_, &found, &message, &status));
  if (!found) return std::nullopt;
  GRADUS_MPI_CHECK(MPI_Get_count(&status, MPI_BYTE, &bytes));
  Posted posted{status.MPI_SOURCE, io::Bytes(static_cast<size_t>(bytes))};
  GRADUS_MPI_CHECK(MPI_Mrecv(posted.bytes.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE));
  return posted;
}

}  // namespace gradus::dist
