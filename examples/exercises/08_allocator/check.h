struct Change {
  bool allocates;
  size_t block, bytes;
};

/// Returns the allocations and releases of a training step of LeNet.
inline std::vector<Change> trace_of_a_step(int64_t batch) {
  using namespace gradus;
  nn::Sequential net(nn::ConvReLU2d(nn::ConvReLU2dOptions(1, 6, 5).padding(2)), nn::MaxPool2d(2),
                     nn::ConvReLU2d(6, 16, 5), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(400, 120), nn::ReLU(),
                     nn::Linear(120, 84), nn::ReLU(), nn::Linear(84, 10));
  optim::Adam optimizer(net->parameters(), 1e-3);
  const BackendGuard naive("naive");  // its workspaces are the same on every machine
  const MemoryReport report = plan(net, {batch, 1, 28, 28}, optimizer);
  std::multimap<int64_t, Change> events;
  for (size_t i = 0; i < report.timeline.size(); ++i) {
    const MemorySpan& span = report.timeline[i];
    if (span.bytes == 0 || span.end <= span.begin) continue;
    events.insert({span.begin, {true, i, static_cast<size_t>(span.bytes)}});
    events.insert({span.end, {false, i, static_cast<size_t>(span.bytes)}});
  }
  std::vector<Change> trace;
  for (const auto& [time, event] : events) trace.push_back(event);
  return trace;
}

/// Returns the highest address that three steps use, relative to the most bytes that exist at a time.
inline double height_of(std::vector<Change> trace) {
  const std::vector<Change> step = trace;
  for (int i = 0; i < 2; ++i) trace.insert(trace.end(), step.begin(), step.end());
  Allocator allocator;
  std::map<size_t, std::pair<size_t, size_t>> living;  // by place: end of the block, and its number
  std::map<size_t, size_t> place_of;
  size_t alive = 0, most = 0, top = 0;
  for (const Change& event : trace) {
    if (!event.allocates) {
      const size_t place = place_of.at(event.block);
      allocator.release(place);
      living.erase(place);
      alive -= event.bytes;
      continue;
    }
    const size_t place = allocator.allocate(event.bytes), end = place + event.bytes;
    require(place % 64 == 0, "a block is at ", place, ", which is no multiple of 64");
    const auto next = living.lower_bound(place);
    const bool meets_next = next != living.end() && next->first < end;
    const bool meets_last = next != living.begin() && std::prev(next)->second.first > place;
    require(!meets_next && !meets_last, "a block of ", event.bytes, " bytes at ", place,
            " overlaps one that is still in use");
    living[place] = {end, event.block};
    place_of[event.block] = place;
    most = std::max(most, alive += event.bytes);
    top = std::max(top, end);
  }
  return static_cast<double>(top) / static_cast<double>(most);
}

inline void check() {
  {
    Allocator allocator;
    const size_t a = allocator.allocate(60), b = allocator.allocate(1), c = allocator.allocate(100);
    require(std::set<size_t>({a, b, c}) == std::set<size_t>({0, 64, 128}),
            "blocks of 60, 1 and 100 bytes fit at 0, 64 and 128, but are at ", listed(std::vector<size_t>{a, b, c}));
    allocator.release(a);
    allocator.release(b);
    const size_t d = allocator.allocate(128);
    require(d == 0,
            "two blocks that were neighbours are free, and together large enough for 128 bytes, but that block is at ",
            d);
    allocator.release(d);
    const size_t e = allocator.allocate(64), f = allocator.allocate(64);
    require(e == 0 && f == 64,
            "what is left of a hole can be used: two blocks of 64 bytes fit into one of 128, but are at ",
            listed(std::vector<size_t>{e, f}));
  }
  for (const int64_t batch : {1, 16, 64}) {
    const double height = height_of(trace_of_a_step(batch));
    std::cout << "steps of LeNet with " << batch << " images: blocks reach to " << height << " times what must live\n";
    require(height <= 1.5, "steps of LeNet with ", batch, " images: blocks reach to ", height,
            " times what lives at one time; 1.5 times is possible without knowing what comes");
  }
}
