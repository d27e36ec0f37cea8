/// Returns all indices of a shape, in order.
inline std::vector<Numbers> indices_of(const Numbers& shape) {
  std::vector<Numbers> all{{}};
  for (const int64_t size : shape) {
    std::vector<Numbers> longer;
    for (const Numbers& index : all)
      for (int64_t i = 0; i < size; ++i) {
        longer.push_back(index);
        longer.back().push_back(i);
      }
    all = longer;
  }
  return all;
}

inline Numbers addresses(const Layout& x) {
  Numbers all;
  for (const Numbers& index : indices_of(x.shape)) all.push_back(address(x, index));
  return all;
}

/// Returns the addresses of the elements of a view that gradus made of arange(n).
inline Numbers addresses(const gradus::Tensor& x) {
  const gradus::Tensor flat = x.contiguous().reshape(-1);
  Numbers all;
  for (int64_t i = 0; i < flat.numel(); ++i) all.push_back(flat[i].item<int64_t>());
  return all;
}

inline void compare(const std::string& what, const Layout& ours, const gradus::Tensor& theirs) {
  const Numbers shape(theirs.sizes().begin(), theirs.sizes().end());
  require(ours.shape == shape, what, ": the shape is ", listed(ours.shape), ", right is ", listed(shape));
  require(ours.strides.size() == shape.size(), what, ": ", ours.strides.size(), " strides for ", shape.size(),
          " dimensions");
  const Numbers got = addresses(ours), right = addresses(theirs);
  require(got == right, what, ": its elements lie at ", listed(got), ", right is ", listed(right));
}

inline void check() {
  using gradus::Tensor;
  const Layout x = contiguous({2, 3, 4});
  const Tensor memory = gradus::arange(24), t = memory.reshape({2, 3, 4});
  require(address(x, {1, 2, 3}) == 23, "address of (1, 2, 3) in (2, 3, 4): got ", address(x, {1, 2, 3}),
          ", right is 23");
  require(address({{2}, {3}, 5}, {1}) == 8, "address: does the offset count?");

  compare("x.transpose(0, 2)", transpose(x, 0, 2), t.transpose(0, 2));
  compare("x.transpose(1, 1)", transpose(x, 1, 1), t);
  compare("x[:, 1:3]", slice(x, 1, 1, 3, 1), t.slice(1, 1, 3));
  compare("x[:, :, 1:4:2]", slice(x, 2, 1, 4, 2), t.slice(2, 1, 4, 2));
  compare("x[:, :, 0:3:2] (the last step may not fit)", slice(x, 2, 0, 3, 2), t.slice(2, 0, 3, 2));
  compare("a slice of a transposed slice", slice(transpose(slice(x, 2, 1, 4, 2), 0, 1), 0, 1, 3, 1),
          t.slice(2, 1, 4, 2).transpose(0, 1).slice(0, 1, 3));
  compare("x[0:1].expand(5, 3, 4)", expand(slice(x, 0, 0, 1, 1), 0, 5), t.slice(0, 0, 1).expand({5, 3, 4}));

  // Compares views of layouts, some of whose dimensions can be merged, with the views that gradus allows.
  const std::vector<std::pair<std::string, std::pair<Layout, Tensor>>> layouts = {
      {"x", {x, t}},
      {"x.transpose(0, 1)", {transpose(x, 0, 1), t.transpose(0, 1)}},
      {"x.transpose(1, 2)", {transpose(x, 1, 2), t.transpose(1, 2)}},
      {"x[:, 1:3]", {slice(x, 1, 1, 3, 1), t.slice(1, 1, 3)}},
      {"x[:, :, 0:4:2]", {slice(x, 2, 0, 4, 2), t.slice(2, 0, 4, 2)}},
      {"x[:, :, 0:1]", {slice(x, 2, 0, 1, 1), t.slice(2, 0, 1)}},  // the strides of dimensions of size 1 do not matter
      {"x.transpose(0, 1)[:, 0:1]", {slice(transpose(x, 0, 1), 1, 0, 1, 1), t.transpose(0, 1).slice(1, 0, 1)}},
      {"x[0:1].expand(2, 3, 4)", {expand(slice(x, 0, 0, 1, 1), 0, 2), t.slice(0, 0, 1).expand({2, 3, 4})}}};
  const std::vector<Numbers> shapes = {{24},   {16},         {12},       {6},          {6, 4},   {2, 12},
                                       {4, 6}, {2, 8},       {8, 2},     {6, 2},       {2, 6},   {3, 2},
                                       {3, 8}, {2, 3, 2, 2}, {1, 2, 12}, {2, 3, 4, 1}, {3, 2, 4}};
  for (const auto& [name, both] : layouts)
    for (const Numbers& shape : shapes) {
      const auto count = [](const Numbers& sizes) {
        return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
      };
      if (count(shape) != both.second.numel()) continue;
      const std::string what = name + ".view" + listed(shape);
      std::optional<Tensor> right;
      try {
        right = both.second.view(shape);
      } catch (const gradus::ShapeError&) {}
      const std::optional<Layout> got = view(both.first, shape);
      require(
          got.has_value() == right.has_value(), what, ": ",
          right ? "there is such a view, but nothing came back" : "no strides describe that, but a layout came back");
      if (got) compare(what, *got, *right);
    }
}
