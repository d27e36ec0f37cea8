#include <gradus/tests/backends/support.h>

#include <algorithm>
#include <cmath>

#include <gradus/core/parallel/parallel.h>

namespace gradus::test {
namespace {

std::string describe(const Arrays& arrays) {
  std::string text;
  for (const Array& x : arrays)
    text.append(" ")
        .append(gradus::name(x.dtype()))
        .append(to_string(x.shape()))
        .append("/")
        .append(to_string(x.strides()));
  return text;
}

Array whole_storage(const Array& x) {
  const int64_t count = static_cast<int64_t>(x.storage().bytes() / size_of(x.dtype()));
  return Array(x.storage(), 0, {count}, {1}, x.dtype());
}

bool same_bytes(const Array& a, const Array& b) {
  const size_t bytes = a.storage().bytes();
  return bytes == 0 || std::memcmp(a.storage().data(), b.storage().data(), bytes) == 0;
}

Arrays copies(const Arrays& arrays, Device device) {
  Arrays copied;
  for (const Array& x : arrays) copied.push_back(copy_to(x, device));
  return copied;
}

}  // namespace

std::string name(Layout layout) {
  static constexpr const char* names[] = {"contiguous", "reversed", "gapped", "broadcast", "channels_last"};
  return names[static_cast<int>(layout)];
}

Array Maker::operator()(const Shape& shape, DType dtype, Layout layout, double low, double high) {
  Shape base = shape;
  if (layout == Layout::reversed) std::reverse(base.begin(), base.end());
  if (layout == Layout::gapped)
    for (int64_t& size : base) size = 2 * size + 1;
  if (layout == Layout::broadcast)
    for (int i = 0; i < base.size(); i += 2) base[i] = std::min<int64_t>(base[i], 1);
  Array x = Array::empty(base, dtype, {},
                         layout == Layout::channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous);
  visit(dtype, [&]<class T> {
    T* data = static_cast<T*>(x.storage().data());
    const double step = is_floating(dtype) ? 0.125 : 1;
    if (std::is_same_v<T, bool>) low = 0, high = 1;
    if (std::is_same_v<T, uint8_t>) low = std::max(low, 0.0);
    std::uniform_int_distribution<int64_t> draw(std::lround(std::ceil(low / step)), std::lround(high / step));
    for (int64_t i = 0; i < x.numel(); ++i) data[i] = static_cast<T>(static_cast<double>(draw(engine_)) * step);
  });
  if (layout == Layout::reversed) {
    Dims order;
    for (int i = x.ndim() - 1; i >= 0; --i) order.push_back(i);
    x = x.permute(order);
  }
  if (layout == Layout::gapped)
    for (int i = 0; i < x.ndim(); ++i) x = x.slice(i, 1, x.size(i), 2);
  if (layout == Layout::broadcast) x = x.expand(shape);
  return x;
}

Array array_of(const Shape& shape, const std::vector<double>& values, DType dtype) {
  Array x = Array::empty(shape, dtype);
  REQUIRE(static_cast<int64_t>(values.size()) == x.numel());
  visit(dtype, [&]<class T> {
    for (size_t i = 0; i < values.size(); ++i) x.data<T>()[i] = static_cast<T>(values[i]);
  });
  return x;
}

Array scalar_of(double value, DType dtype) { return array_of({}, {value}, dtype); }

bool has_device_backend() {
  const auto names = backend_names();
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return !Device(backend(name).device_type()).is_cpu(); });
}

void check_agreement(const std::string& what, const Arrays& in, const Arrays& out, const Run& run,
                     const Run& default_run, double factor) {
  const Arrays expected = copies(out, {});
  run(backend("naive"), copies(in, {}), expected);
  auto compare = [&](Backend& candidate, const Run& candidate_run, const char* body) {
    const Device device(candidate.device_type());
    const Arrays inputs = copies(in, device), outputs = copies(out, device);
    INFO(what << " by " << candidate.name() << "'s " << body << ", inputs" << describe(in) << ", outputs"
              << describe(out));
    REQUIRE_NOTHROW(candidate_run(candidate, inputs, outputs));
    for (size_t i = 0; i < out.size(); ++i) {
      INFO("output " << i);
      const double allowed = std::min(factor * tolerance_of(out[i].dtype()), 0.2);
      REQUIRE(error(outputs[i], expected[i]) <= allowed);
      REQUIRE(error(whole_storage(outputs[i]), whole_storage(expected[i])) <= allowed);  // including the gaps
    }
    if (device.is_cpu()) {  // one thread must give the same bits
      const Arrays serial = copies(out, device);
      {
        const SerialGuard one_thread;
        candidate_run(candidate, inputs, serial);
      }
      for (size_t i = 0; i < out.size(); ++i) {
        INFO("output " << i << " on one thread");
        REQUIRE(same_bytes(serial[i], outputs[i]));
      }
    }
    for (size_t i = 0; i < in.size(); ++i) {
      INFO("input " << i << " is only read");
      REQUIRE(same_bytes(copy_to(inputs[i], {}), in[i]));
    }
  };
  for (const std::string& candidate : backend_names()) {
    if (candidate != "naive") compare(backend(candidate), run, "kernel");
    if (default_run) compare(backend(candidate), default_run, "default body");
  }
}

}  // namespace gradus::test
