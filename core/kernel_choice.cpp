#include <gradus/core/kernel_choice.h>

#include <algorithm>
#include <cstdlib>
#include <locale>
#include <sstream>

#include <gradus/core/error.h>
#include <gradus/core/platform/file.h>

namespace gradus {

constinit thread_local ForcedAlgorithm::Forced ForcedAlgorithm::current_;

ForcedAlgorithm::ForcedAlgorithm(const char* name) : outer_(current_) {
  current_ = {name, 14695981039346656037u};
  for (; *name; ++name) current_.id = (current_.id ^ static_cast<unsigned char>(*name)) * 1099511628211u;  // FNV-1a
}

TuningTable::TuningTable(std::string_view builtin) {
  add(builtin, "the built-in tuning table");
  if (const char* path = std::getenv("GRADUS_TUNING"); path && *path) {
    const io::Bytes bytes = io::read_file(path);
    add({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
  }
}

void TuningTable::add(std::string_view text, const std::string& source) {
  std::istringstream lines{std::string(text)};
  Device* device = nullptr;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto check = [&](bool right, const char* problem) {
      GRADUS_CHECK(right, ValueError, source, ", line ", number, ": ", problem, " in '", line, "'");
    };
    std::istringstream words(line.substr(0, line.find('#')));
    words.imbue(std::locale::classic());  // whatever locale the program has set, 0.5 is a half
    std::string first, kind, algorithm, part;
    if (!(words >> first) || first == "R\"(" || first == ")\"") continue;  // a raw string of C++
    std::map<std::string, double> numbers;
    const auto read_numbers = [&] {
      while (words >> part) {
        check(static_cast<bool>(words >> numbers[part]), "a number is missing");
        check(numbers[part] >= 0 && numbers[part] < 1e12, "a number is out of range");
      }
    };
    if (first == "device") {
      check(static_cast<bool>(words >> first), "a name is missing");
      read_numbers();
      check(!numbers.empty() || devices_.contains(first), "a device without numbers that no line before describes");
      device = &devices_[first];
      if (numbers.empty()) continue;  // more rows of a device
      for (const char* wanted : {"threads", "multiply_adds_per_us", "bytes_per_us"})
        check(numbers[wanted] >= 1, "a device needs threads, multiply_adds_per_us and bytes_per_us, each at least 1");
      device->threads = static_cast<int>(std::min(numbers["threads"], 4096.0));
      device->multiply_adds_per_us = numbers["multiply_adds_per_us"], device->bytes_per_us = numbers["bytes_per_us"];
    } else {
      check(device, "a row before the first device");
      check(static_cast<bool>(words >> kind >> algorithm), "a family, a kind or an algorithm is missing");
      read_numbers();
      device->factors[first + ' ' + kind + ' ' + algorithm] = numbers;
      if (!first_) first_ = device;
    }
  }
}

const TuningTable::Device& TuningTable::device(const std::string& name) const {
  const auto found = devices_.find(name);
  GRADUS_CHECK(found != devices_.end(), ValueError, "the tuning table has no device ", name);
  return found->second;
}

void TuningTable::check_row(const std::string& row, const std::vector<WorkParts>& parts) const {
  for (const auto& device : devices_) {
    const auto factors = device.second.factors.find(row);
    if (factors == device.second.factors.end()) continue;
    for (const auto& factor : factors->second) {
      const std::string& part = factor.first;
      const auto has_part = [&](const WorkParts& each) {
        return std::ranges::any_of(each, [&](const WorkPart& known) { return known.name && known.name == part; });
      };
      GRADUS_CHECK(std::ranges::any_of(parts, has_part), ValueError, "the tuning table's row '", row,
                   "' has a factor for '", part,
                   "', which is no part of the algorithm's work; measure again with benchmarks/tune");
    }
  }
}

KernelWork TuningTable::us_per_unit(const std::string& device_name, const std::string& row,
                                    const WorkParts& parts) const {
  const Device& device = this->device(device_name);
  const Device& measured = device.factors.count(row) || !first_ ? device : *first_;
  const auto factors = measured.factors.find(row);
  KernelWork result = {};
  for (size_t i = 0; i < kMaxWorkParts && parts[i].name; ++i) {
    const bool known = factors != measured.factors.end() && factors->second.count(parts[i].name) > 0;
    result[i] = (known ? factors->second.at(parts[i].name) : 1) / device.per_us(parts[i].limit);
  }
  return result;
}

}  // namespace gradus
