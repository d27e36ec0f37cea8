#include <gradus/data/tar_stream.h>

#include <gradus/core/deadline.h>
#include <gradus/data/random_streams.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <numeric>

namespace gradus::data::detail {
namespace {

constexpr size_t kFileOverhead = 512;  // of an archive, and about what a name and a map take here

size_t bytes_of(const TarSample& sample) {
  size_t bytes = sample.key.size();
  for (const auto& [extension, data] : sample.fields) bytes += data.size() + extension.size() + kFileOverhead;
  return bytes;
}

}  // namespace

TarSampleReader::TarSampleReader(const std::string& path, uint64_t offset)
    : file_(path),
      tar_([this](uint64_t at, void* to, size_t bytes) { file_.read_at(at, to, bytes); }, file_.size(), path, offset),
      ahead_(tar_.next()) {}

std::optional<TarSample> TarSampleReader::next() {
  std::optional<TarSample> sample;
  for (uint64_t bytes = 0; ahead_; ahead_ = tar_.next()) {
    const std::string& name = ahead_->name;
    const size_t base = name.rfind('/') + 1, dot = name.find('.', base);  // rfind's npos + 1 is 0
    if (dot == name.npos || dot == base) continue;                        // as WebDataset has it
    std::string key = name.substr(0, dot), extension = name.substr(dot + 1);
    if (sample && sample->key != key) break;
    if (!sample) sample = TarSample{std::move(key), file_.path(), {}};
    std::transform(extension.begin(), extension.end(), extension.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    bytes += ahead_->data.size() + name.size() + kFileOverhead;
    GRADUS_CHECK(bytes <= io::kMostTarFileBytes, IoError, "'", file_.path(), "', byte ", ahead_->offset, ": sample '",
                 sample->key, "' is too large: at most ", io::kMostTarFileBytes, " bytes are accepted");
    const bool is_new = sample->fields.emplace(std::move(extension), std::move(ahead_->data)).second;
    GRADUS_CHECK(is_new, IoError, "'", file_.path(), "', byte ", ahead_->offset, ": a second file '", name, "'");
  }
  return sample;
}

std::shared_ptr<TarStream> TarStream::open(std::vector<std::string> folders,
                                           const datasets::TarShardsOptions& options) {
  const std::shared_ptr<TarStream> stream(new TarStream(std::move(folders), options));
  return {stream.get(), [stream](TarStream*) { stream->stop(); }};
}

TarStream::TarStream(std::vector<std::string> folders, const datasets::TarShardsOptions& options)
    : options_(options), folders_(std::move(folders)), reading_since_(folders_.size()) {
  GRADUS_CHECK(options.rank < options.num_replicas, ValueError, "tar shards for ", options.num_replicas,
               " ranks have ranks below that, got rank ", options.rank);
  std::map<std::string, std::vector<size_t>> holders;  // by name, so that all ranks have one order
  for (size_t i = 0; i < folders_.size(); ++i) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folders_[i], error), end; !error && entry != end;
         entry.increment(error))
      if (entry->path().extension() == ".tar") holders[entry->path().filename().string()].push_back(i);
    GRADUS_CHECK(!error, IoError, "cannot read the folder '", folders_[i], "': ", error.message());
  }
  GRADUS_CHECK(holders.size() >= options.num_replicas, ValueError, options.num_replicas,
               " ranks need as many tar shards, there are ", holders.size());
  std::vector<size_t> homes(folders_.size());
  for (auto& [name, owners] : holders) {
    std::stable_sort(owners.begin(), owners.end(), [&](size_t a, size_t b) { return homes[a] < homes[b]; });
    ++homes[owners[0]];
    shards_.push_back({name, owners});
  }
}

void TarStream::stop() {
  std::unique_lock lock(mutex_);
  stop_ = true;
  changed_.notify_all();
  for (size_t folder = 0; folder < threads_.size(); ++folder) {
    while (reading_since_[folder] && !is_stuck(folder))
      changed_.wait_until(lock, *reading_since_[folder] + bounded(options_.stall_limit));
    const bool joins = !reading_since_[folder];
    lock.unlock();
    if (joins) threads_[folder].join();
    else threads_[folder].detach();
    lock.lock();
  }
}

// The rank's shards. The first of each folder come first, then the second ones: so each part of the order has a share
// of every folder.
std::vector<size_t> TarStream::order_of(uint64_t seed, uint64_t epoch) const {
  const size_t count = shards_.size();
  std::vector<size_t> order(count), place(count), places(folders_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (options_.shuffle) {
    samplers::RandomSampler sampler(count);
    sampler.reset(seed, epoch);
    order = *sampler.next(count);
  }
  for (const size_t shard : order) place[shard] = places[shards_[shard].folders[0]]++;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place[a] < place[b]; });
  const auto bound = [&](size_t rank) {
    return order.begin() + static_cast<std::ptrdiff_t>(rank * count / options_.num_replicas);
  };
  return {bound(options_.rank), bound(options_.rank + 1)};
}

void TarStream::reset(uint64_t seed, uint64_t epoch) {
  std::vector<std::shared_ptr<Lane>> lanes;
  for (size_t folder = 0; folder < folders_.size(); ++folder) {
    lanes.push_back(std::make_shared<Lane>());
    lanes.back()->folder = folder;
  }
  for (const size_t shard : order_of(seed, epoch)) lanes[shards_[shard].folders[0]]->shards.push_back(shard);
  shuffle_buffer_.clear();
  turn_ = drawn_ = 0, seed_ = seed, epoch_ = epoch;
  std::lock_guard lock(mutex_);
  lanes_ = std::move(lanes);
  drawn_samples_.clear();
  for (size_t folder = threads_.size(); folder < folders_.size(); ++folder)
    threads_.emplace_back([self = shared_from_this(), folder] { self->read(folder); });
  changed_.notify_all();
}

std::optional<size_t> TarStream::draw(bool drop) {
  while (shuffle_buffer_.size() < std::max<size_t>(options_.shuffle_buffer, 1)) {
    std::optional<Numbered> next = take();
    if (!next) break;
    shuffle_buffer_.push_back(std::move(*next));
  }
  if (shuffle_buffer_.empty()) return std::nullopt;
  const auto size = static_cast<int64_t>(shuffle_buffer_.size());
  const int64_t chosen = random_integer(seed_, shuffle_buffer_stream(epoch_), drawn_++, 0, size);
  std::swap(shuffle_buffer_[static_cast<size_t>(chosen)], shuffle_buffer_.back());
  Numbered next = std::move(shuffle_buffer_.back());
  shuffle_buffer_.pop_back();
  std::lock_guard lock(mutex_);
  if (!drop) drawn_samples_.emplace(next.number, std::move(next.sample));
  return next.number;
}

TarSample TarStream::give(size_t number) {
  std::lock_guard lock(mutex_);
  auto found = drawn_samples_.extract(number);
  GRADUS_CHECK(!found.empty(), IndexError, "sample ", number,
               " of tar shards is given once, after their sampler drew it");
  return std::move(found.mapped());
}

std::string TarStream::describe() const {
  return "tar shards, " + std::to_string(shards_.size()) + " in " + std::to_string(folders_.size()) + " folders";
}

// The next sample of the lane whose turn it is; waits for it.
std::optional<TarStream::Numbered> TarStream::take() {
  std::unique_lock lock(mutex_);
  while (!lanes_.empty()) {
    turn_ %= lanes_.size();
    std::shared_ptr<Lane>& lane = lanes_[turn_];
    if (!lane->ready.empty()) {
      Numbered next = std::move(lane->ready.front());
      lane->ready.pop_front();
      lane->ready_bytes -= bytes_of(next.sample);
      ++turn_;
      changed_.notify_all();
      return next;
    }
    if (lane->error) std::rethrow_exception(lane->error);
    if (lane->shards.empty()) lanes_.erase(lanes_.begin() + static_cast<std::ptrdiff_t>(turn_));
    else if (is_stuck(lane->folder)) overtake(lane);
    else changed_.wait_until(lock, reading_since_[lane->folder].value_or(Clock::now()) + bounded(options_.stall_limit));
  }
  return std::nullopt;
}

bool TarStream::is_stuck(size_t folder) const {
  return reading_since_[folder] && Clock::now() - *reading_since_[folder] >= options_.stall_limit;
}

// From which the lane's open shard can be read.
std::optional<size_t> TarStream::folder_for(const Lane& lane) const {
  for (const size_t folder : shards_[lane.shards.front()].folders)
    if (!is_stuck(folder) && !lane.failed.contains(folder)) return folder;
  return std::nullopt;
}

// The lane that a folder's thread is to read next: the one with the least in hand.
std::shared_ptr<TarStream::Lane> TarStream::lane_of(size_t folder) const {
  std::shared_ptr<Lane> least;
  for (const std::shared_ptr<Lane>& lane : lanes_)
    if (lane->folder == folder && !lane->shards.empty() && !lane->error && lane->ready_bytes < options_.read_ahead &&
        (!least || lane->ready_bytes < least->ready_bytes))
      least = lane;
  return least;
}

// Another folder goes on. What the thread that is stuck brings after all goes to the old lane, which nobody looks at.
void TarStream::overtake(std::shared_ptr<Lane>& lane) {
  const std::optional<size_t> folder = folder_for(*lane);
  GRADUS_CHECK(folder, IoError, "'", folders_[lane->folder], "' has not answered for ", options_.stall_limit.count(),
               " ms, and no other folder has '", shards_[lane->shards.front()].name, "'");
  lane = std::make_shared<Lane>(std::move(*lane));
  lane->folder = *folder;
  lane->reader.reset();
  changed_.notify_all();
}

void TarStream::to_next_shard(Lane& lane) {
  lane.shards.pop_front();
  lane.offset = lane.place = 0;
  lane.failed.clear();
  if (!lane.shards.empty()) lane.folder = folder_for(lane).value_or(shards_[lane.shards.front()].folders[0]);
}

void TarStream::read(size_t folder) {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::shared_ptr<Lane> lane;
    changed_.wait(lock, [&] { return stop_ || (lane = lane_of(folder)); });
    if (stop_) return;
    const size_t shard = lane->shards.front();
    const uint64_t offset = lane->offset;
    std::unique_ptr<TarSampleReader> reader = std::move(lane->reader);
    std::optional<TarSample> sample;
    std::exception_ptr error;
    reading_since_[folder] = Clock::now();
    lock.unlock();
    try {
      if (!reader) reader = std::make_unique<TarSampleReader>(folders_[folder] + "/" + shards_[shard].name, offset);
      sample = reader->next();
    } catch (...) { error = std::current_exception(); }
    lock.lock();
    reading_since_[folder].reset();
    changed_.notify_all();
    if (std::find(lanes_.begin(), lanes_.end(), lane) == lanes_.end()) continue;  // overtaken, or of another epoch
    if (error) {
      lane->failed.insert(folder);
      if (const auto other = folder_for(*lane)) lane->folder = *other;
      else lane->error = error;
    } else if (sample) {
      lane->offset = reader->offset();
      lane->reader = std::move(reader);
      lane->ready_bytes += bytes_of(*sample);
      lane->ready.push_back({shard << 32 | lane->place++, std::move(*sample)});
    } else {
      to_next_shard(*lane);
    }
  }
}

}  // namespace gradus::data::detail
