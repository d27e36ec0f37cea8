inline void check_rank(int64_t elements) {
  const auto group = gradus::dist::init_process_group({.timeout = gradus::dist::Milliseconds(5000)});
  Link link(*group);
  const gradus::Tensor x = (gradus::arange(elements) + 1).to(gradus::kFloat) * (link.rank + 1);
  all_reduce(link, x);

  const int ranks = link.size;
  const gradus::Tensor right = (gradus::arange(elements) + 1).to(gradus::kFloat) * (ranks * (ranks + 1) / 2);
  for (int64_t i = 0; i < elements; ++i)
    require(x[i].item<float>() == right[i].item<float>(), ranks, " ranks, ", elements, " elements: x[", i, "] of rank ",
            link.rank, " is ", x[i].item<float>(), ", the sum ", right[i].item<float>());
  const int64_t most = 2 * (elements - elements / ranks);
  require(link.elements_sent <= most, ranks, " ranks, ", elements, " elements: rank ", link.rank, " has sent ",
          link.elements_sent, "; ", most, " are enough");
}

inline void check() {
  check_rank(5);  // a single rank has nothing to do
  for (const int ranks : {2, 3, 4})
    for (const int64_t elements : {12, 7, 1000}) {
      try {
        gradus::dist::spawn([&](int) { check_rank(elements); }, ranks);
      } catch (const gradus::CommError& error) { require(false, error.what()); }
    }
}
