#include <gradus/data/datasets/tar_shards.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>

#include <gradus/autograd/ops/creation.h>
#include <gradus/core/io/parse_number.h>
#include <gradus/core/io/png.h>
#include <gradus/core/runtime/deadline.h>
#include <gradus/data/datasets/csv.h>
#include <gradus/data/datasets/image_dataset.h>
#include <gradus/data/images/image_file.h>
#include <gradus/data/sample.h>

namespace gradus::data {
namespace detail {
namespace {

// Size of a tar entry's header, used as an estimate of the memory for a field's name and map node.
constexpr size_t kFileOverhead = 512;

size_t bytes_of(const TarSample& sample) {
  size_t bytes = sample.key.size();
  for (const auto& [extension, data] : sample.fields) bytes += data.size() + extension.size() + kFileOverhead;
  return bytes;
}

/// Reads the samples of a shard, starting at byte `offset`, where a sample must begin.
class TarSampleReader {
 public:
  TarSampleReader(const std::string& path, uint64_t offset)
      : file_(path),
        tar_([this](uint64_t at, void* to, size_t bytes) { file_.read_at(at, to, bytes); }, file_.size(), path, offset),
        ahead_(tar_.next()) {}

  /// The byte at which the next sample begins.
  uint64_t offset() const { return ahead_ ? ahead_->offset : tar_.offset(); }

  std::optional<TarSample> next() {
    std::optional<TarSample> sample;
    for (uint64_t bytes = 0; ahead_; ahead_ = tar_.next()) {
      const std::string& name = ahead_->name;
      // Without a '/', rfind returns npos, and npos + 1 is 0.
      const size_t base = name.rfind('/') + 1, dot = name.find('.', base);
      if (dot == name.npos || dot == base) continue;  // names without a key or a field are skipped, as by WebDataset
      std::string key = name.substr(0, dot), extension = name.substr(dot + 1);
      if (sample && sample->key != key) break;
      if (!sample) sample = TarSample{std::move(key), file_.path(), {}};
      for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      bytes += ahead_->data.size() + name.size() + kFileOverhead;
      GRADUS_CHECK(bytes <= io::kMostTarFileBytes, IoError, "'", file_.path(), "', byte ", ahead_->offset, ": sample '",
                   sample->key, "' is too large: at most ", io::kMostTarFileBytes, " bytes are accepted");
      const bool is_new = sample->fields.emplace(std::move(extension), std::move(ahead_->data)).second;
      GRADUS_CHECK(is_new, IoError, "'", file_.path(), "', byte ", ahead_->offset, ": a second file '", name, "'");
    }
    return sample;
  }

 private:
  io::InputFile file_;
  io::TarReader tar_;
  std::optional<io::TarFile> ahead_;  // the first tar entry of the next sample
};

}  // namespace

/// Reads the samples of an epoch ahead of the consumer. Its threads share its ownership, because a thread that is stuck
/// in a read may return after the consumer has dropped the stream.
///
/// Each shard has a home, one of the folders that have it. The shards with the same home are a lane, and a separate
/// thread reads each lane. The consumer takes samples from the lanes in turn, so that all folders are read at the same
/// time and the order of the samples does not depend on the folders' speed. If reading from a folder fails, the lane's
/// thread continues at the same byte of the shard in another folder. If a folder does not answer in time, a new thread
/// takes over the lane and continues in another folder.
class TarStream : public std::enable_shared_from_this<TarStream> {
 public:
  /// The destructor of the result stops the threads. It waits for reads in progress, but not for stalled reads.
  static std::shared_ptr<TarStream> open(std::vector<std::string> folders, const datasets::TarShardsOptions& options) {
    const std::shared_ptr<TarStream> stream(new TarStream(std::move(folders), options));
    return {stream.get(), [stream](TarStream*) { stream->stop(); }};
  }

  void reset(uint64_t seed, uint64_t epoch) {
    std::vector<Lane> lanes(folders_.size());
    for (const size_t shard : order_of(seed, epoch)) lanes[shards_[shard].folders[0]].shards.push_back(shard);
    shuffle_buffer_.clear();
    turn_ = drawn_ = 0;
    seed_ = seed;
    epoch_ = epoch;
    error_ = nullptr;
    std::lock_guard lock(mutex_);
    drawn_samples_.clear();
    lanes_.clear();
    for (Lane& lane : lanes) {
      if (lane.shards.empty()) continue;
      begin_shard(lane);
      lanes_.push_back(start(std::move(lane)));
    }
    changed_.notify_all();
  }

  /// Returns the number of the next sample, or nothing at the end of the epoch. Keeps the sample for give(), or
  /// discards it if `drop` is true.
  std::optional<size_t> draw(bool drop) {
    while (shuffle_buffer_.size() < std::max<size_t>(options_.shuffle_buffer, 1)) {
      std::optional<Numbered> next = take();
      if (!next) break;
      shuffle_buffer_.push_back(std::move(*next));
    }
    if (shuffle_buffer_.empty()) return std::nullopt;
    const auto size = std::ssize(shuffle_buffer_);
    const int64_t chosen = random_integer(seed_, shuffle_buffer_stream(epoch_), drawn_++, 0, size);
    std::swap(shuffle_buffer_[static_cast<size_t>(chosen)], shuffle_buffer_.back());
    Numbered next = std::move(shuffle_buffer_.back());
    shuffle_buffer_.pop_back();
    std::lock_guard lock(mutex_);
    if (!drop) drawn_samples_.emplace(next.number, std::move(next.sample));
    return next.number;
  }

  TarSample give(size_t number) {
    std::lock_guard lock(mutex_);
    auto found = drawn_samples_.extract(number);
    GRADUS_CHECK(!found.empty(), IndexError, "sample ", number,
                 " of tar shards can be taken only once, after their sampler has drawn it");
    return std::move(found.mapped());
  }

  std::string describe() const {
    return "tar shards, " + std::to_string(shards_.size()) + " in " + std::to_string(folders_.size()) + " folders";
  }

 private:
  struct Numbered {
    size_t number;  // 2^32 times the shard's number plus the sample's place in it; the same in all epochs and ranks
    TarSample sample;
  };
  struct Shard {
    std::string name;
    Indices folders;  // indices of the folders that have this shard; the first is its home
  };
  struct Lane {
    std::deque<size_t> shards;        // numbers of the shards still to read; the first is being read
    size_t folder = 0, place = 0;     // folder that the first shard is read from; place of its next sample
    uint64_t offset = 0;              // byte of the shard at which that sample begins
    std::set<size_t> failed;          // folders in which the first shard could not be read
    std::optional<Deadline> reading;  // deadline of the read in progress
    std::deque<Numbered> ready;
    size_t ready_bytes = 0;
    std::exception_ptr error;

    bool is_stuck() const { return reading && reading->passed(); }
  };
  using LanePtr = std::shared_ptr<Lane>;

  TarStream(std::vector<std::string> folders, const datasets::TarShardsOptions& options)
      : options_(options), folders_(std::move(folders)) {
    GRADUS_CHECK(options.rank < options.num_replicas, ValueError,
                 "the rank of tar shards must be less than num_replicas = ", options.num_replicas, ", got ",
                 options.rank);
    // The folders of each shard. They are sorted by name, so that all ranks number the shards alike.
    std::map<std::string, Indices> holders;
    for (size_t i = 0; i < folders_.size(); ++i)
      for (const std::filesystem::path path : entries_of(folders_[i]))
        if (path.extension() == ".tar") holders[path.filename().string()].push_back(i);
    GRADUS_CHECK(holders.size() >= options.num_replicas, ValueError, options.num_replicas,
                 " ranks need at least one tar shard each, there are ", holders.size());
    std::vector<size_t> homes(folders_.size());
    for (auto& [name, owners] : holders) {
      std::stable_sort(owners.begin(), owners.end(), [&](size_t a, size_t b) { return homes[a] < homes[b]; });
      ++homes[owners[0]];
      shards_.push_back({name, owners});
    }
  }

  void stop() {
    error_ = nullptr;
    std::unique_lock lock(mutex_);
    lanes_.clear();
    changed_.notify_all();
    const auto all_stuck = [&] { return std::ranges::all_of(read_, &Lane::is_stuck); };
    changed_.wait_for(lock, bounded(options_.stall_limit), all_stuck);
  }

  // Returns the shards of this rank in the order of the epoch. The order of all shards begins with the first shard of
  // each home, then come the second shards, and so on. The part of each rank, which is a contiguous range of this
  // order, therefore has shards from as many folders as possible.
  Indices order_of(uint64_t seed, uint64_t epoch) const {
    const size_t count = shards_.size();
    Indices order(count), place(count), places(folders_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (options_.shuffle) order = samplers::RandomSampler::order_of(count, seed, epoch);
    for (const size_t shard : order) place[shard] = places[shards_[shard].folders[0]]++;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place[a] < place[b]; });
    const auto bound = [&](size_t rank) {
      return order.begin() + static_cast<std::ptrdiff_t>(rank * count / options_.num_replicas);
    };
    return {bound(options_.rank), bound(options_.rank + 1)};
  }

  // Returns the next sample of the lane whose turn it is, and waits for it if necessary. Nothing at the end of the
  // epoch.
  std::optional<Numbered> take() {
    std::unique_lock lock(mutex_);
    while (!lanes_.empty()) {
      turn_ %= lanes_.size();
      LanePtr& lane = lanes_[turn_];
      if (!lane->ready.empty()) {
        Numbered next = std::move(lane->ready.front());
        lane->ready.pop_front();
        lane->ready_bytes -= bytes_of(next.sample);
        ++turn_;
        changed_.notify_all();
        return next;
      }
      if (lane->error) error_ = std::move(lane->error);
      if (error_) std::rethrow_exception(error_);
      if (lane->shards.empty()) {
        lanes_.erase(lanes_.begin() + static_cast<std::ptrdiff_t>(turn_));
      } else if (lane->is_stuck()) {
        // A new thread reads a copy of the lane from another folder. If the stuck thread's read returns after all, that
        // thread adds the sample to the old lane, which is not used any more.
        Lane other = *lane;
        GRADUS_CHECK(find_folder(other), IoError, "'", folders_[lane->folder], "' has not answered for ",
                     options_.stall_limit.count(), " ms, and no other folder has '", shards_[lane->shards.front()].name,
                     "'");
        other.reading.reset();
        lane = start(std::move(other));
      } else {
        changed_.wait_for(lock, lane->reading.value_or(Deadline(options_.stall_limit)).left());
      }
    }
    return std::nullopt;
  }

  // Selects a folder for the lane's first shard: one that has not failed for this shard and in which no read is stuck.
  // Returns false if there is none.
  bool find_folder(Lane& lane) const {
    const Indices& folders = shards_[lane.shards.front()].folders;
    const auto found = std::ranges::find_if(folders, [&](size_t folder) {
      const auto is_stuck = [&](const LanePtr& other) { return other->folder == folder && other->is_stuck(); };
      return !lane.failed.contains(folder) && std::ranges::none_of(read_, is_stuck);
    });
    lane.folder = found == folders.end() ? folders[0] : *found;
    return found != folders.end();
  }

  void begin_shard(Lane& lane) const {
    lane.offset = lane.place = 0;
    lane.failed.clear();
    if (!lane.shards.empty()) find_folder(lane);
  }

  LanePtr start(Lane lane) {
    auto started = std::make_shared<Lane>(std::move(lane));
    read_.insert(started);
    std::thread([self = shared_from_this(), started] { self->read(started); }).detach();
    return started;
  }

  void read(const LanePtr& lane) {
    std::unique_ptr<TarSampleReader> reader;
    std::unique_lock lock(mutex_);
    const auto is_left = [&] { return std::ranges::find(lanes_, lane) == lanes_.end(); };
    while (!is_left() && !lane->shards.empty() && !lane->error) {
      if (lane->ready_bytes >= options_.read_ahead && !lane->ready.empty()) {
        changed_.wait(lock);
        continue;
      }
      const size_t shard = lane->shards.front();
      const std::string path = folders_[lane->folder] + "/" + shards_[shard].name;
      const uint64_t offset = lane->offset;
      std::optional<TarSample> sample;
      std::exception_ptr error;
      lane->reading.emplace(options_.stall_limit);
      lock.unlock();
      try {
        if (!reader) reader = std::make_unique<TarSampleReader>(path, offset);
        sample = reader->next();
      } catch (...) { error = std::current_exception(); }
      lock.lock();
      lane->reading.reset();
      changed_.notify_all();
      if (sample) {
        lane->offset = reader->offset();
        lane->ready_bytes += bytes_of(*sample);
        lane->ready.push_back({shard << 32 | lane->place++, std::move(*sample)});
        continue;
      }
      reader.reset();
      if (error) {
        lane->failed.insert(lane->folder);
        if (!find_folder(*lane)) lane->error = std::move(error);
      } else {
        lane->shards.pop_front();
        begin_shard(*lane);
      }
    }
    read_.erase(lane);
    changed_.notify_all();
  }

  const datasets::TarShardsOptions options_;
  const std::vector<std::string> folders_;
  std::vector<Shard> shards_;

  // Used only by the consumer.
  uint64_t seed_ = 0, epoch_ = 0, drawn_ = 0;
  size_t turn_ = 0;           // index of the lane that gives the next sample
  std::exception_ptr error_;  // the exception that ended the epoch; moved here from its lane
  std::vector<Numbered> shuffle_buffer_;

  std::mutex mutex_;  // protects all members below
  std::condition_variable changed_;
  std::vector<LanePtr> lanes_;
  std::set<LanePtr> read_;  // lanes whose threads still run, even if they are stuck or of an earlier epoch
  std::unordered_map<size_t, TarSample> drawn_samples_;  // by number; used by the consumer and by the loader's workers
};

}  // namespace detail

namespace samplers {

void TarShardSampler::reset(uint64_t seed, uint64_t epoch) { stream_->reset(seed, epoch); }

std::optional<Indices> TarShardSampler::next(size_t batch_size) {
  Indices numbers;
  while (numbers.size() < batch_size) {
    const std::optional<size_t> number = stream_->draw(/*drop=*/false);
    if (!number) break;
    numbers.push_back(*number);
  }
  return numbers.empty() ? std::nullopt : std::optional(std::move(numbers));
}

void TarShardSampler::skip(uint64_t batches, size_t batch_size) {
  for (; batches > 0; --batches)
    for (size_t i = 0; i < batch_size; ++i)
      if (!stream_->draw(/*drop=*/true)) return;
}

}  // namespace samplers

namespace datasets {

TarShards::TarShards(std::vector<std::string> folders, const TarShardsOptions& options)
    : stream_(detail::TarStream::open(std::move(folders), options)) {}

TarSample TarShards::get(size_t index) { return stream_->give(index); }

std::vector<std::string> TarShards::plan() const { return {stream_->describe()}; }

}  // namespace datasets
// ---- Encoding and decoding of samples ----

namespace {

std::string padded(size_t number, size_t digits) {
  const std::string text = std::to_string(number);
  return std::string(digits - std::min(digits, text.size()), '0') + text;
}

io::Bytes png_of(const Tensor& image) {
  GRADUS_CHECK(image.dim() == 3 && image.dtype() == DType::f32, ShapeError,
               "tar shards are made of images (C, H, W) float32, got ", image.dtype(), " of shape ", image.sizes());
  const Tensor pixels = (image.detach().cpu().clamp(0, 1) * 255 + 0.5).to(kByte).permute({1, 2, 0}).contiguous();
  const auto* const bytes = static_cast<const std::byte*>(pixels.data_ptr());  // (H, W, C)
  return io::encode_png({bytes, static_cast<size_t>(pixels.numel())}, pixels.size(0), pixels.size(1), pixels.size(2));
}

}  // namespace

Example<> decode_image_and_class(const TarSample& sample) {
  const std::string name = sample.shard + "': '" + sample.key;
  const io::Bytes* image = nullptr;
  for (const char* extension : {"png", "jpg", "jpeg"})
    if (const auto found = sample.fields.find(extension); found != sample.fields.end()) image = &found->second;
  const auto label = sample.fields.find("cls");
  GRADUS_CHECK(image && label != sample.fields.end(), IoError, "'", name,
               "' needs a field png, jpg or jpeg, and a field cls");
  const std::string_view text(reinterpret_cast<const char*>(label->second.data()), label->second.size());
  const std::optional<int64_t> number = io::parse_number<int64_t>(detail::bare_number(text));
  GRADUS_CHECK(number, IoError, "'", name, "': the field cls, '", text.substr(0, 40), "', is not an integer");
  return {unit_floats(decode_image(*image, name)), tensor(*number)};
}

void write_tar_shards(datasets::AnyDataset<> images, const std::vector<std::string>& folders,
                      size_t samples_per_shard) {
  const std::optional<size_t> size = images.size();
  GRADUS_CHECK(size && !folders.empty() && samples_per_shard > 0, ValueError,
               "write_tar_shards needs a data set whose size is known, a folder and samples for each shard");
  for (size_t shard = 0; shard * samples_per_shard < *size; ++shard) {
    io::TarWriter tar(folders[shard % folders.size()] + "/shard-" + padded(shard, 6) + ".tar");
    const size_t end = std::min(*size, (shard + 1) * samples_per_shard);
    for (size_t i = shard * samples_per_shard; i < end; ++i) {
      const Example<> sample = images.get(i);
      tar.add(padded(i, 8) + ".png", png_of(sample.data));
      tar.add(padded(i, 8) + ".cls", std::to_string(sample.target.item<int64_t>()));
    }
    tar.commit();
  }
}

}  // namespace gradus::data
