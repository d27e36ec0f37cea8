// Finds the parameter to which an entry of an optimizer's state dict belongs. Internal to distributed/sharding.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

namespace gradus::dist {

/// The parts of a key: 3 and "exp_avg" for "state.3.exp_avg".
struct StateEntry {
  size_t parameter;
  std::string name;
};

/// Nothing for entries that belong to no parameter, such as "param_groups.0.lr".
inline std::optional<StateEntry> state_entry(const std::string& key) {
  size_t parameter = 0;
  int length = 0;
  if (std::sscanf(key.c_str(), "state.%zu.%n", &parameter, &length) != 1 || length == 0) return std::nullopt;
  return StateEntry{parameter, key.substr(static_cast<size_t>(length))};
}

}  // namespace gradus::dist
