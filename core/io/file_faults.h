// Injected faults in the system calls that read and write files. For tests; internal to core/io.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

namespace gradus::io {

/// Called before each system call of AtomicFile: "open", "lock", "write", "sync", "mode", "rename", "close", "unlink",
/// "list". A result other than 0 is the errno that the call fails with. `bytes` is the length of a write, which may be
/// reduced, and null for the other calls.
using FileFault = int (*)(const char* call, size_t* bytes);

/// Called before InputFile reads `bytes` bytes; it may wait, like a slow disk, or throw.
using ReadFault = void (*)(const std::string& path, size_t bytes);

/// Null except in tests.
inline std::atomic<FileFault> file_fault{nullptr};
inline std::atomic<ReadFault> read_fault{nullptr};

}  // namespace gradus::io
