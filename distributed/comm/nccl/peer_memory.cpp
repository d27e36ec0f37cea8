#include <gradus/distributed/comm/nccl/peer_memory.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <gradus/core/formulas/integers.h>
#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {
namespace {

/// Size limit for a sum in one kernel: the lines of all other ranks together have at most this size. Each rank has two
/// halves of kStagingBytes / (ranks - 1) bytes for its lines.
constexpr size_t kStagingBytes = 4 << 20;
/// Bytes of all slots in the memory of one rank. This is also the size of the longest array that is summed here.
constexpr size_t kSlotBytes = 64 << 20;
/// The sizes of a slot and of a half of the staging memory are multiples of this. The piece of a half that belongs to
/// each of the kernel's 32 blocks is then aligned to 128 bytes.
constexpr size_t kAlignment = 4096;
/// How long to wait for other ranks to close this rank's memory before it is freed.
constexpr Milliseconds kEndTime{500};

/// Returns true if the call succeeded. A failure is no error: all ranks then do without peer memory.
bool succeeds(cudaError_t error) {
  cudaGetLastError();  // otherwise the next launch would report the error
  return error == cudaSuccess;
}

bool is_switched_off() {
  const char* const value = std::getenv("NCCL_P2P_DISABLE");
  return value != nullptr && std::string(value) != "0";
}

/// Atomic operations in another GPU's memory are possible over NVLink, but not over PCIe.
bool reaches_by_nvlink(int device, const std::string& bus) {
  int peer = 0, atomics = 0;
  return succeeds(cudaDeviceGetByPCIBusId(&peer, bus.c_str())) && peer != device &&
         succeeds(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer)) &&
         atomics != 0;
}

size_t round_down(size_t bytes) { return bytes / kAlignment * kAlignment; }

}  // namespace

PeerMemory::PeerMemory(std::shared_ptr<Store> store, int rank, int size) : store_(std::move(store)) {
  peers_.rank = rank;
  peers_.size = size;
  peers_.staging = round_down(kStagingBytes / static_cast<size_t>(size - 1));
  peers_.slot = round_down(kSlotBytes / static_cast<size_t>(size));
}

std::unique_ptr<PeerMemory> PeerMemory::connect(std::shared_ptr<Store> store, int rank, int size, bool on_one_host,
                                                const Deadline& deadline) {
  if (!on_one_host || size < 2 || size > kMaxPeers) return nullptr;
  std::unique_ptr<PeerMemory> memory(new PeerMemory(store, rank, size));
  const auto of_all = [&](const char* what, const std::string& own) {
    return values_of_ranks(*store, what, own, rank, size, deadline.left());
  };
  const std::vector<std::string> handles = of_all("peers/memory", is_switched_off() ? "" : memory->allocate());
  bool opened = memory->peers_.memory[rank] != nullptr;
  for (int r = 0; r < size; ++r) opened = opened && (r == rank || memory->open(r, handles[static_cast<size_t>(r)]));
  const bool all_opened = std::ranges::count(of_all("peers/opened", opened ? "1" : "0"), "1") == size;
  return all_opened ? std::move(memory) : nullptr;
}

/// Returns what other ranks need to open this rank's memory, the IPC handle followed by the bus number of the GPU; ""
/// on failure.
std::string PeerMemory::allocate() {
  void* memory = nullptr;
  const size_t bytes = peers_.bytes();
  if (!succeeds(cudaMalloc(&memory, bytes))) return "";
  peers_.memory[peers_.rank] = static_cast<std::byte*>(memory);
  void* stopped = nullptr;
  cudaIpcMemHandle_t handle;
  char bus[32] = "";
  int device = 0;
  const bool done = succeeds(cudaMemset(memory, 0, bytes)) && succeeds(cudaDeviceSynchronize()) &&
                    succeeds(cudaHostAlloc(&stopped, sizeof(int), cudaHostAllocPortable | cudaHostAllocMapped)) &&
                    succeeds(cudaIpcGetMemHandle(&handle, memory)) && succeeds(cudaGetDevice(&device)) &&
                    succeeds(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
  stopped_ = static_cast<int*>(stopped);
  peers_.stopped = stopped_;
  if (!done) return "";
  *stopped_ = 0;
  return std::string(handle.reserved, sizeof handle.reserved) + bus;
}

bool PeerMemory::open(int peer, const std::string& handle) {
  cudaIpcMemHandle_t ipc;
  int device = 0;
  if (handle.size() <= sizeof ipc.reserved || !succeeds(cudaGetDevice(&device)) ||
      !reaches_by_nvlink(device, handle.substr(sizeof ipc.reserved)))
    return false;
  std::memcpy(ipc.reserved, handle.data(), sizeof ipc.reserved);
  void* memory = nullptr;
  if (!succeeds(cudaIpcOpenMemHandle(&memory, ipc, cudaIpcMemLazyEnablePeerAccess))) return false;
  peers_.memory[peer] = static_cast<std::byte*>(memory);
  return true;
}

PeerMemory::~PeerMemory() {
  if (stopped_ != nullptr && *stopped_ != 0) return;  // freeing would wait for kernels that may never end
  for (int r = 0; r < peers_.size; ++r)
    if (r != peers_.rank && peers_.memory[r] != nullptr) succeeds(cudaIpcCloseMemHandle(peers_.memory[r]));
  // This rank's memory must not be freed while other ranks have it open. If a rank does not close it within kEndTime,
  // the memory is freed only when the process ends.
  bool closed = true;
  try {
    wait_for_ranks(*store_, "peers/closed", "1", peers_.rank, peers_.size, kEndTime);
  } catch (const CommError&) { closed = false; }
  if (closed && peers_.memory[peers_.rank] != nullptr) succeeds(cudaFree(peers_.memory[peers_.rank]));
  if (stopped_ != nullptr) succeeds(cudaFreeHost(stopped_));
}

void PeerMemory::stop() noexcept { std::atomic_ref(*stopped_).store(1); }

bool PeerMemory::serves(const Descriptor& call) const {
  return call.kind == CollectiveKind::all_reduce && is_floating(call.dtype) &&
         (call.reduce == ReduceKind::sum || call.reduce == ReduceKind::avg) &&
         call.count * size_of(call.dtype) <= peers_.slot * static_cast<size_t>(peers_.size);
}

void PeerMemory::all_reduce(const Descriptor& call, const std::vector<PeerLine>& lines, const Stream& stream) const {
  PeerLines small;
  size_t bytes = 0;
  const auto flush = [&] {
    if (small.size > 0) all_reduce_lines(stream, peers_, call.dtype, call.reduce, small);
    small.size = 0;
    bytes = 0;
  };
  for (const PeerLine& line : lines) {
    const size_t own = round_up(line.count * size_of(call.dtype), kPartBytes);
    if (own == 0) continue;
    if (own > peers_.staging) {
      all_reduce_shares(stream, peers_, call.dtype, call.reduce, line.in, line.out, line.count);
      continue;
    }
    if (bytes + own > peers_.staging || small.size == kMaxPeerLines) flush();
    small.in[small.size] = line.in;
    small.out[small.size] = line.out;
    small.count[small.size++] = static_cast<uint32_t>(line.count);
    bytes += own;
  }
  flush();
}

}  // namespace gradus::dist
