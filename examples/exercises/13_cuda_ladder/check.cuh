using exercise::Array, exercise::check_cuda, exercise::require_equal, exercise::run, exercise::seconds;

/// Sums of whole numbers are the same in any order.
inline Array whole_numbers(int rows, int columns, unsigned seed) {
  return Array(rows, columns,
               [random = std::minstd_rand(seed)]() mutable { return static_cast<float>(random() % 17) - 8; });
}
inline std::string size_of(int rows, int columns) { return std::to_string(rows) + " x " + std::to_string(columns); }
inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// Rows and columns: a number a thread, many, rows that do not fill a block, fewer numbers than threads, none.
inline const std::pair<int, int> kRows[] = {{8, 256}, {500, 1000}, {5, 33}, {3, 7}, {1, 5000}, {9, 1}, {7, 0}};

template <class Run>
void check_sums(const std::string& kernel, const Run& run) {
  for (const auto& [rows, columns] : kRows) {
    const Array x = whole_numbers(rows, columns, 13), y(rows, 1);
    const std::string of = kernel + " of " + size_of(rows, columns);
    run(of, x, y);
    require_equal(
        of, y, [&x](int i, int) { return std::accumulate(x.data + i * x.columns, x.data + (i + 1) * x.columns, 0.0); });
  }
}

inline void check_softmax(float middle, const std::string& hint) {
  for (const auto& [rows, columns] : kRows) {
    const Array y(rows, columns), x(rows, columns, [middle, random = std::minstd_rand(13)]() mutable {
      return middle + static_cast<float>(random() % 2001) / 500 - 2;
    });
    const std::string of = "row_softmax of " + size_of(rows, columns) + hint;
    run(of, y, row_softmax, ceil_div(rows, kWarps), kThreads, rows, columns, x.data, y.data);
    std::vector<double> sums(rows);
    for (int i = 0; i < rows && columns > 0; ++i) {
      for (int j = 0; j < columns; ++j) sums[i] += std::exp(double{x(i, j)} - middle);
      const double total = std::accumulate(y.data + i * columns, y.data + (i + 1) * columns, 0.0);
      require(std::abs(total - 1) < 1e-3, of, ": row ", i, " adds up to ", total, ", not to 1");
    }
    const auto right = [&x, &sums, middle](int i, int j) { return std::exp(double{x(i, j)} - middle) / sums[i]; };
    require_equal(of, y, right, 1e-4);
  }
}

inline void check_product(int m, int n, int k, const std::string& hint) {
  const Array A = whole_numbers(m, k, 1), B = whole_numbers(k, n, 2), C(m, n);
  const std::string of = "product of " + size_of(m, k) + " and " + size_of(k, n) + hint;
  const dim3 grid(ceil_div(n, kTile), ceil_div(m, kTile)), block(kTile, kTile);
  run(of, C, product, grid, block, m, n, k, A.data, B.data, C.data);
  require_equal(of, C, [&](int i, int j) {
    double sum = 0;
    for (int l = 0; l < k; ++l) sum += double{A(i, l)} * B(l, j);
    return sum;
  });
}

/// How far they are from what the device can do, which decides nothing.
inline void print_speed() {
  const int rows = 8192, columns = 4096, n = 2048;
  const size_t bytes = size_t{rows} * columns * sizeof(float);
  float *x = nullptr, *y = nullptr;
  check_cuda(cudaMalloc(&x, bytes), "memory for timing"), check_cuda(cudaMalloc(&y, bytes), "memory for timing");
  check_cuda(cudaMemset(x, 0, bytes), "memory for timing");
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  const auto sums = seconds([&] { block_sums<<<rows, kThreads>>>(columns, x, y); }),
             by_warps = seconds([&] { warp_sums<<<rows / kWarps, kThreads>>>(rows, columns, x, y); }),
             softmax = seconds([&] { row_softmax<<<rows / kWarps, kThreads>>>(rows, columns, x, y); }),
             copy = seconds([&] { cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice); });
  std::cout << size_of(rows, columns) << ", GB/s: block_sums " << gigabytes / sums << ", warp_sums "
            << gigabytes / by_warps << ", row_softmax " << 2 * gigabytes / softmax << "; a copy makes "
            << 2 * gigabytes / copy << "\n";

  int processors = 0, kilohertz = 0, major = 0, minor = 0;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  const double lanes = 10 * major + minor > 80 ? 128 : 64;  // of float32 in a multiprocessor
  const dim3 grid(n / kTile, n / kTile), block(kTile, kTile);
  const double time = seconds([&] { product<<<grid, block>>>(n, n, n, x, x, y); });
  std::cout << size_of(n, n) << ", TFLOP/s: product " << 2e-12 * n * n * n / time
            << "; the device's float32 units make " << 2e-9 * lanes * processors * kilohertz << "\n";
}

inline void check() {
  exercise::need_a_gpu();
  check_sums("block_sums", [](const std::string& of, const Array& x, const Array& y) {
    run(of, y, block_sums, x.rows, kThreads, x.columns, x.data, y.data);
  });
  check_sums("warp_sums", [](const std::string& of, const Array& x, const Array& y) {
    run(of, y, warp_sums, ceil_div(x.rows, kWarps), kThreads, x.rows, x.columns, x.data, y.data);
  });
  check_softmax(0, "");
  check_softmax(1000, ", numbers around 1000, whose exp() is inf unless the maximum is taken off first");
  check_softmax(-1000, ", numbers around -1000, whose maximum is not 0");
  check_product(64, 48, 256, ", whole tiles");
  check_product(16, 16, 50, ", where the last of four tiles has 2 columns of the first and 2 rows of the second");
  check_product(33, 17, 32, ", where tiles of the result at the border are not whole");
  check_product(1, 40, 7, "");
  check_product(40, 1, 50, "");
  check_product(1, 1, 1, "");
  check_product(5, 5, 0, ", sums of nothing");
  print_speed();
}
