// Functions of the operating system for this process: cores, forks, address space, process id and host name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

namespace gradus::platform {

/// Number of cores that the calling thread may run on (taskset and batch systems restrict them); at least 1.
int allowed_cores();
/// The core that the calling thread runs on; -1 if the system does not say.
int current_core();
/// Moves the calling thread from `core` to another allowed core if there is one. Afterwards the thread may run on all
/// allowed cores again.
void leave_core(int core);
/// Restricts the calling thread to these cores; does nothing if `cores` is empty.
void bind_to_cores(const std::vector<int>& cores);

/// Makes every later fork() call `in_child` in the child, on the thread that forked.
void on_fork(void (*in_child)());

/// Reserves addresses for `bytes` zero bytes. A page takes up physical memory only once it is written. Returns null if
/// the system refuses.
char* map_memory(size_t bytes);
void unmap_memory(void* data, size_t bytes);

/// The name of a type as in source code: "gradus::nn::LinearImpl".
std::string demangled(const std::type_info& type);
/// A name without the namespaces, classes and functions in front of it: "LinearImpl".
std::string unqualified(const std::string& name);

int process_id();
/// "localhost" if the machine has no name.
std::string host_name();
/// Writes to the standard error stream at once. A signal handler may call it.
void write_to_stderr(std::string_view text);

}  // namespace gradus::platform
