// The CPU's memory: aligned blocks kept in size-class free lists.
#pragma once

#include <memory>

#include <gradus/core/runtime/runtime.h>

namespace gradus {

std::unique_ptr<DeviceRuntime> make_cpu_runtime();

}  // namespace gradus
