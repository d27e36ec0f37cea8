// Event files, read back by a parser in this test.
#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/crc32c.h>
#include <gradus/core/io/png.h>
#include <gradus/core/platform/file.h>
#include <gradus/core/platform/process.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

#include <bit>
#include <limits>
#include <map>

using namespace gradus;
using test::contains;
using training::SummaryWriter;

namespace {

/// The fields of a protobuf message by number: integers and floating-point numbers as bits, other fields as bytes.
struct Message {
  std::multimap<int, uint64_t> numbers;
  std::multimap<int, std::string> texts;

  explicit Message(const std::string& bytes) {
    size_t at = 0;
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        REQUIRE(at < bytes.size());
        const uint8_t byte = static_cast<uint8_t>(bytes[at++]);
        value |= static_cast<uint64_t>(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
      }
    };
    const auto fixed = [&](size_t size) {
      REQUIRE(at + size <= bytes.size());
      uint64_t value = 0;
      for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[at + i])) << 8 * i;
      at += size;
      return value;
    };
    while (at < bytes.size()) {
      const uint64_t key = varint();
      const int field = static_cast<int>(key >> 3);
      if ((key & 7) == 0) numbers.emplace(field, varint());
      else if ((key & 7) == 1) numbers.emplace(field, fixed(8));
      else if ((key & 7) == 5) numbers.emplace(field, fixed(4));
      else {
        REQUIRE((key & 7) == 2);
        const uint64_t length = varint();
        REQUIRE(at + length <= bytes.size());
        texts.emplace(field, bytes.substr(at, length));
        at += length;
      }
    }
  }
  double number(int field) const { return std::bit_cast<double>(numbers.find(field)->second); }
  int64_t integer(int field) const { return static_cast<int64_t>(numbers.find(field)->second); }
  float real(int field) const { return std::bit_cast<float>(static_cast<uint32_t>(numbers.find(field)->second)); }
  std::string text(int field) const { return texts.contains(field) ? texts.find(field)->second : "(none)"; }
  Message message(int field) const { return Message(text(field)); }
};

std::vector<Message> events_of(const std::string& path) {
  const io::Bytes file = io::read_file(path);
  const auto checked = [&](size_t at, size_t length) {
    REQUIRE(at + length + 4 <= file.size());
    const uint32_t crc = io::crc32c(io::ByteSpan(file).subspan(at, length));
    CHECK(io::read_little_endian<uint32_t>(file.data() + at + length) == (crc >> 15 | crc << 17) + 0xa282ead8u);
    return std::string(reinterpret_cast<const char*>(file.data() + at), length);
  };
  std::vector<Message> events;
  for (size_t at = 0; at < file.size();) {
    checked(at, 8);
    const uint64_t length = io::read_little_endian<uint64_t>(file.data() + at);
    events.emplace_back(checked(at + 12, length));
    at += 12 + length + 4;
  }
  return events;
}

std::vector<double> doubles(const std::string& packed) {
  std::vector<double> values;
  for (size_t i = 0; i < packed.size(); i += 8)
    values.push_back(
        std::bit_cast<double>(io::read_little_endian<uint64_t>(reinterpret_cast<const std::byte*>(packed.data()) + i)));
  return values;
}

}  // namespace

TEST_CASE("scalars, text and the header of an event file", "[tensorboard]") {
  const test::TemporaryDirectory directory;
  const std::string folder = directory.file("runs/a");
  SummaryWriter writer(folder);
  CHECK_THAT(writer.path(), contains(folder + "/events.out.tfevents."));
  writer.add_scalar("loss/train", 0.1, 0);
  writer.add_scalar("loss/train", std::numeric_limits<double>::quiet_NaN(), int64_t{1} << 40);
  writer.add_text("note", "**bold**", 3);
  CHECK(events_of(writer.path()).size() == 1);  // the other events are still buffered
  writer.flush();
  const std::vector<Message> events = events_of(writer.path());
  REQUIRE(events.size() == 4);
  CHECK(events[0].text(3) == "brain.Event:2");
  CHECK(events[0].number(1) > 1.6e9);  // seconds since 1970
  const Message first = events[1].message(5).message(1);
  CHECK(first.text(1) == "loss/train");
  CHECK(first.real(2) == 0.1f);
  CHECK(events[1].integer(2) == 0);
  CHECK(events[2].integer(2) == int64_t{1} << 40);
  const Message text = events[3].message(5).message(1);
  CHECK(text.text(1) == "note/text_summary");
  CHECK(text.message(8).integer(1) == 7);
  CHECK(text.message(8).text(8) == "**bold**");
  CHECK(text.message(8).message(2).message(2).integer(1) == 1);
  CHECK(text.message(9).message(1).text(1) == "text");

  // A second writer for the folder writes another file, which may hide later steps of the first one.
  training::SummaryWriterOptions options;
  options.purge_step = 2;
  options.filename_suffix = ".resumed";
  SummaryWriter second(folder, options);
  CHECK(second.path() != writer.path());
  CHECK(writer.path().ends_with("." + std::to_string(platform::process_id()) + ".0"));
  CHECK(second.path().ends_with(".resumed"));
  const Message start = events_of(second.path())[1];
  CHECK(start.integer(2) == 2);
  CHECK(start.message(7).integer(1) == 1);
}

TEST_CASE("histograms count every value", "[tensorboard]") {
  const test::TemporaryDirectory directory;
  std::string path;
  {
    SummaryWriter writer(directory.path().string());
    path = writer.path();
    writer.add_histogram("h", tensor({-2.0, -0.5, 0.0, 0.0, 1e-13, 0.5, 0.5, 3.0}), 7);
    writer.add_histogram("one", tensor({4.0f}), 7);
    writer.add_histogram("zeros", zeros({5}, dtype(kLong)), 7);
    writer.add_histogram("far", tensor({-1e30, 1e30}), 7);
    CHECK_THROWS_WITH(writer.add_histogram("bad", tensor({1.0, 0.0}) / 0.0, 1),
                      contains("'bad'") && contains("finite"));
    CHECK_THROWS_WITH(writer.add_histogram("none", zeros({0}), 1), contains("'none'") && contains("no values"));
  }
  const std::vector<Message> events = events_of(path);
  REQUIRE(events.size() == 5);
  const Message h = events[1].message(5).message(1).message(5);
  CHECK(h.number(1) == -2);
  CHECK(h.number(2) == 3);
  CHECK(h.number(3) == 8);
  CHECK(h.number(4) == Approx(1.5));
  CHECK(h.number(5) == Approx(4 + 3 * 0.25 + 9));
  for (size_t i = 1; i < events.size(); ++i) {
    const Message histogram = events[i].message(5).message(1).message(5);
    const std::vector<double> limits = doubles(histogram.text(6)), counts = doubles(histogram.text(7));
    REQUIRE(limits.size() == counts.size());
    double total = 0;
    for (size_t k = 0; k < counts.size(); ++k) {
      total += counts[k];
      if (k > 0) CHECK(limits[k] > limits[k - 1]);
    }
    CHECK(counts.front() == 0);  // the first bucket is empty
    CHECK(counts.back() > 0);
    CHECK(total == histogram.number(3));
  }
  // Each value is in its bucket: below the bucket's limit, and not below the previous limit.
  const std::vector<double> limits = doubles(h.text(6)), counts = doubles(h.text(7));
  CHECK(std::count(limits.begin(), limits.end(), 0.0) == 1);
  for (const auto& [value, count] : std::map<double, double>{{-2.0, 1}, {-0.5, 1}, {0.5, 2}, {3.0, 1}, {1e-13, 3}}) {
    const auto limit = std::upper_bound(limits.begin(), limits.end(), value);
    REQUIRE(limit != limits.end());
    CHECK(counts[static_cast<size_t>(limit - limits.begin())] == count);
  }
}

TEST_CASE("the buckets of a histogram grow by a tenth, and include their lower edges", "[tensorboard]") {
  const test::TemporaryDirectory directory;
  SummaryWriter writer(directory.path().string());
  const auto buckets = [&](const Tensor& values) {
    writer.add_histogram("h", values, 0);
    writer.flush();
    const Message histogram = events_of(writer.path()).back().message(5).message(1).message(5);
    return std::pair(doubles(histogram.text(6)), doubles(histogram.text(7)));
  };
  // TensorFlow's buckets begin 1e-12, 1.1e-12, …; each list of counts begins with an empty bucket.
  const double edge = 1e-12, next = 1e-12 * 1.1, third = 1e-12 * 1.1 * 1.1;
  CHECK(buckets(tensor(std::vector<double>{edge}, kDouble)) ==
        std::pair(std::vector{edge, next}, std::vector{0.0, 1.0}));
  CHECK(buckets(zeros({3})) == std::pair(std::vector{0.0, edge}, std::vector{0.0, 3.0}));
  CHECK(buckets(tensor(std::vector<double>{-edge}, kDouble)) ==
        std::pair(std::vector{-edge, 0.0}, std::vector{0.0, 1.0}));
  CHECK(buckets(tensor(std::vector<double>{next, -1e-13, next}, kDouble)) ==
        std::pair(std::vector{-edge, 0.0, edge, next, third}, std::vector{0.0, 1.0, 0.0, 0.0, 2.0}));
  // Larger values belong to the last bucket, and their negatives to the first one.
  const auto [limits, counts] = buckets(tensor(std::vector<double>{-1e25, 1e19, 1e25, 1e30}, kDouble));
  CHECK(limits.front() < -9e19);
  CHECK(limits.front() == -limits.back());
  CHECK(limits.back() < 1e20);
  CHECK(limits.back() * 1.1 >= 1e20);
  CHECK(counts.at(1) == 1);
  CHECK(counts.back() == 2);
}

TEST_CASE("entries are written when the buffer has 64 KiB, and on destruction", "[tensorboard]") {
  const test::TemporaryDirectory directory;
  std::string path;
  {
    SummaryWriter writer(directory.path().string());
    path = writer.path();
    writer.add_text("short", std::string(65'000, 'x'), 0);
    CHECK(events_of(path).size() == 1);
    writer.add_text("long", std::string(1'000, 'x'), 0);
    CHECK(events_of(path).size() == 3);
    writer.add_scalar("last", 1, 0);
    CHECK(events_of(path).size() == 3);
  }
  CHECK(events_of(path).size() == 4);

  SummaryWriter writer(directory.path().string());
  // The bytes that are in the file after an entry with a text of `length` bytes.
  const auto written = [&](size_t length) {
    writer.add_text("text", std::string(length, 'x'), 0);
    return io::read_file(writer.path()).size();
  };
  const size_t start = io::read_file(writer.path()).size();
  CHECK(written(60'000) == start);
  writer.flush();
  const size_t flushed = io::read_file(writer.path()).size(), more = flushed - start - 60'000;
  const size_t fits = (1 << 16) - more;
  CHECK(written(fits - 1) == flushed);
  writer.flush();
  CHECK(written(fits) == flushed + (1 << 16) - 1 + (1 << 16));
}

TEST_CASE("images are PNG files of their pixels", "[tensorboard]") {
  const test::TemporaryDirectory directory;
  SummaryWriter writer(directory.path().string());
  const auto png = [&](const Tensor& image) {
    writer.add_image("image", image, 0);
    writer.flush();
    return events_of(writer.path()).back().message(5).message(1).message(4).text(4);
  };
  const auto expected = [](const std::vector<uint8_t>& pixels, int64_t height, int64_t width, int64_t channels) {
    const io::Bytes bytes = io::encode_png(std::as_bytes(std::span(pixels)), height, width, channels);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  // Numbers are clamped to [0, 1] and rounded to the nearest of 255 levels.
  CHECK(png(tensor({{0.0f, 0.5f, 1.0f}, {-1.0f, 2.0f, 0.25f}})) == expected({0, 128, 255, 0, 255, 64}, 2, 3, 1));
  CHECK(png(tensor({{{0.0, 1.0}}, {{0.2, 0.4}}, {{0.6, 0.8}}})) == expected({0, 51, 153, 255, 102, 204}, 1, 2, 3));
  CHECK(png(arange(0, 8, kByte).view({4, 2, 1})) == expected({0, 2, 4, 6, 1, 3, 5, 7}, 2, 1, 4));
  CHECK(png(arange(0, 6, kByte).view({1, 2, 3}).transpose(1, 2)) == expected({0, 3, 1, 4, 2, 5}, 3, 2, 1));
}

TEST_CASE("images have their sizes, and other arrays are refused", "[tensorboard]") {
  const test::TemporaryDirectory directory;
  SummaryWriter writer(directory.path().string());
  writer.add_image("grey", rand({4, 6}), 0);
  writer.add_image("colour", zeros({3, 2, 5}), 0);
  writer.add_image("bytes", zeros({1, 2, 5}, dtype(kByte)), 0);
  for (const Shape& shape : {Shape{2, 4, 4}, Shape{2, 1, 3}, Shape{2, 3, 1}, Shape{1, 2, 3, 4}})
    CHECK_THROWS_AS(writer.add_image("x", zeros(shape), 0), ShapeError);
  CHECK_THROWS_AS(writer.add_image("x", zeros({4}), 0), ShapeError);
  CHECK_THROWS_AS(writer.add_image("x", zeros({4, 4}, dtype(kLong)), 0), DTypeError);
  writer.flush();
  const std::vector<Message> events = events_of(writer.path());
  REQUIRE(events.size() == 4);
  const Message grey = events[1].message(5).message(1).message(4), colour = events[2].message(5).message(1).message(4);
  CHECK(grey.integer(1) == 4);
  CHECK(grey.integer(2) == 6);
  CHECK(grey.integer(3) == 1);
  CHECK(grey.text(4).substr(1, 3) == "PNG");
  CHECK(colour.integer(3) == 3);
}

TEST_CASE("a folder that cannot be written is an error that names it", "[tensorboard]") {
  const test::TemporaryDirectory directory;
  io::write_file(directory.file("file"), "text");
  CHECK_THROWS_AS(SummaryWriter(directory.file("file")), IoError);
  CHECK_THROWS_WITH(SummaryWriter(directory.file("file/run")),
                    contains("cannot make the folder '" + directory.file("file/run") + "': "));
}
