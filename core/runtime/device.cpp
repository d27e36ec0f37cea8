#include <gradus/core/runtime/device.h>

namespace gradus {

std::string_view name(DeviceType type) { return type == DeviceType::cpu ? "cpu" : "cuda"; }

Device::Device(std::string_view text) {
  std::string_view kind = text.substr(0, text.find(':'));
  const bool known = kind == "cpu" || kind == "cuda";
  bool valid = known;
  int number = kind == "cuda" ? -1 : 0;
  if (known && kind.size() < text.size()) {
    const std::string_view digits = text.substr(kind.size() + 1);
    valid = !digits.empty() && digits.size() <= 2;
    number = 0;
    for (char c : digits) {
      valid = valid && c >= '0' && c <= '9';
      number = number * 10 + (c - '0');
    }
    valid = valid && (kind == "cuda" || number == 0);
  }
  GRADUS_CHECK(valid, ValueError, "unknown device '", text, "': use \"cpu\", \"cuda\" or \"cuda:N\"");
  *this = Device(kind == "cpu" ? DeviceType::cpu : DeviceType::cuda, number);
}

std::string Device::str() const {
  if (is_cpu()) return "cpu";
  return has_index() ? "cuda:" + std::to_string(index_) : "cuda";
}

}  // namespace gradus
