#include <gradus/tests/op_cases/op_case.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

namespace gradus::op_cases {

Input index(const Shape& shape, int64_t bound) {
  Input input(shape, Fill::index);
  input.dtype = DType::i64;
  input.bound = bound;
  return input;
}

Input mask(const Shape& shape) {
  Input input(shape, Fill::any);
  input.dtype = DType::boolean;
  return input;
}

bool OpCase::runs_in(DType dtype) const {
  const bool half = is_floating(dtype) && size_of(dtype) == 2;
  const Types wanted = half                      ? half_floats
                       : is_floating(dtype)      ? wide_floats
                       : dtype == DType::boolean ? booleans
                                                 : integers;
  return types & wanted;
}

static bool is_special(const Input& input) {
  return input.fill == Fill::special || input.fill == Fill::corner || input.fill == Fill::corner_rows;
}

bool OpCase::smooth() const {
  return finite_differences && std::none_of(inputs.begin(), inputs.end(), [](const Input& input) {
    return input.fill == Fill::ties || is_special(input);
  });
}

bool OpCase::has_special_numbers() const { return std::any_of(inputs.begin(), inputs.end(), is_special); }

OpCase& CaseList::add(std::string name, std::vector<Input> inputs, Run run, std::string torch) {
  for (const OpCase& other : cases_) GRADUS_CHECK(other.name != name, ValueError, "two op cases are named '", name, "'");
  OpCase op_case;
  op_case.name = std::move(name);
  op_case.family = family_;
  op_case.inputs = std::move(inputs);
  op_case.run = std::move(run);
  op_case.torch = std::move(torch);
  return cases_.emplace_back(std::move(op_case));
}

OpCase& CaseList::add(std::string name, std::vector<Input> inputs, Tensor (*run)(X), std::string torch) {
  return add(std::move(name), std::move(inputs), Run([run](X x) { return TensorList{run(x)}; }), std::move(torch));
}

OpCase& CaseList::add(std::string name, std::vector<Input> inputs, std::tuple<Tensor, Tensor> (*run)(X),
                      std::string torch) {
  Run list = [run](X x) {
    auto [first, second] = run(x);
    return TensorList{first, second};
  };
  return add(std::move(name), std::move(inputs), std::move(list), std::move(torch));
}

void CaseList::keep(std::string_view operators) {
  for (size_t begin = 0, end = 0; end != std::string_view::npos; begin = end + 1) {
    end = operators.find(',', begin);
    const std::string_view name = operators.substr(begin, end == std::string_view::npos ? end : end - begin);
    GRADUS_CHECK(std::any_of(cases_.begin(), cases_.end(), [&](const OpCase& c) { return c.op() == name; }), ValueError,
                 "there is no op case of an operator '", name, "'");
  }
  const std::string list = "," + std::string(operators) + ",";
  std::erase_if(cases_, [&](const OpCase& op_case) { return list.find("," + op_case.op() + ",") == std::string::npos; });
}

namespace {

struct Family {
  const char* name;
  void (*add)(CaseList&);
};
constexpr Family families[] = {
    {"elementwise", add_elementwise},
    {"activation", add_activation},
    {"comparisons", add_comparisons},
    {"compositions", add_compositions},
    {"in_place", add_in_place},
    {"creation", add_creation},
    {"shape", add_shape},
    {"index", add_index},
    {"reduce", add_reduce},
    {"sort", add_sort},
    {"matmul", add_matmul},
    {"linear_algebra", add_linear_algebra},
    {"conv", add_conv},
    {"pool", add_pool},
    {"resample", add_resample},
    {"norm", add_norm},
    {"loss", add_loss},
    {"losses", add_losses},
    {"attention", add_attention},
    {"image", add_image},
    {"layers", add_layers},
    {"corners", add_corners},
};

}  // namespace

const std::deque<OpCase>& all_cases() {
  static const CaseList list = [] {
    CaseList cases;
    for (const Family& family : families) {
      cases.begin_family(family.name);
      family.add(cases);
    }
    if (const char* operators = std::getenv("GRADUS_OP_CASES")) cases.keep(operators);
    return cases;
  }();
  return list.cases();
}

const OpCase& find_case(std::string_view name) {
  for (const OpCase& op_case : all_cases())
    if (op_case.name == name) return op_case;
  GRADUS_FAIL(ValueError, "there is no op case named '", name, "'");
}

namespace {

/// Draws the numbers of one case: the odd multiples of 1/128 in random order, repeatedly.
class Draw {
 public:
  explicit Draw(const std::string& name) {
    uint64_t seed = 14695981039346656037ull;  // FNV-1a hash of the name
    for (unsigned char c : name) seed = (seed ^ c) * 1099511628211ull;
    random_.seed(seed);
    for (int k = -255; k <= 255; k += 2) grid_.push_back(k / 128.0);
    shuffle();
  }

  double floating(Fill fill) {
    static const double specials[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.0, -1.0, 60000.0, -60000.0, 0x1p-14, 1.5};
    if (fill == Fill::ties) return integer(-1, 1);
    if (fill == Fill::special) return specials[next_special_++ % std::size(specials)];
    static const double corners[] = {0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, 0x1p-20, 0x1p20, 0.5, -2.0};
    if (fill == Fill::corner) return corners[next_special_++ % std::size(corners)];
    if (fill == Fill::corner_rows) return corners[next_special_++ / std::size(corners) % std::size(corners)];
    for (;;) {
      if (next_ == grid_.size()) shuffle();
      const double x = grid_[next_++];
      switch (fill) {
        case Fill::positive: if (x > 0.5) return x; break;
        case Fill::nonzero: if (std::abs(x) > 0.25) return x; break;
        case Fill::unit: if (x > 0 && x < 1) return x; break;
        default: return x;
      }
    }
  }

  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  double whole(const Input& input, DType dtype) {
    if (dtype == DType::boolean) return static_cast<double>(integer(0, 1));
    const int64_t low = dtype == DType::u8 ? 0 : -4;
    switch (input.fill) {
      case Fill::index: return static_cast<double>(integer(0, input.bound - 1));
      case Fill::positive: case Fill::unit: return static_cast<double>(integer(1, 4));
      case Fill::ties: return static_cast<double>(integer(std::max<int64_t>(low, -1), 1));
      case Fill::nonzero: {
        const int64_t x = integer(low, 3);
        return static_cast<double>(x < 0 ? x : x + 1);
      }
      default: return static_cast<double>(integer(low, 4));
    }
  }

 private:
  void shuffle() {
    for (size_t i = grid_.size() - 1; i > 0; --i) std::swap(grid_[i], grid_[random_() % (i + 1)]);
    next_ = 0;
  }

  std::mt19937_64 random_;
  std::vector<double> grid_;
  size_t next_ = 0, next_special_ = 0;
};

}  // namespace

static Tensor drawn(Draw& draw, const Input& input, DType dtype) {
  const Tensor numbers = empty(input.shape, kDouble);
  double* data = numbers.data_ptr<double>();
  for (int64_t i = 0; i < numbers.numel(); ++i)
    data[i] = is_floating(dtype) ? draw.floating(input.fill) : draw.whole(input, dtype);
  return numbers.to(dtype);
}

TensorList make_inputs(const OpCase& op_case, DType dtype) {
  const NoGradGuard no_grad;
  Draw draw(op_case.name);
  TensorList inputs;
  for (const Input& input : op_case.inputs) inputs.push_back(drawn(draw, input, input.dtype.value_or(dtype)));
  return inputs;
}

Tensor make_like(const Tensor& x, const std::string& key) {
  const NoGradGuard no_grad;
  Draw draw(key);
  return drawn(draw, {x.sizes(), Fill::any}, x.dtype()).to(x.device());
}

Tensor lay_out(const Tensor& x, Layout layout) {
  const NoGradGuard no_grad;
  Tensor laid_out;
  if (layout == Layout::channels_last && x.dim() == 4) {
    laid_out = x.contiguous(MemoryFormat::channels_last);
  } else if (layout == Layout::transposed) {
    Dims reversed;
    for (int64_t axis = x.dim() - 1; axis >= 0; --axis) reversed.push_back(axis);
    laid_out = x.permute(reversed).contiguous().permute(reversed);
  } else if (layout == Layout::strided) {
    Shape wide = x.sizes();
    if (wide.empty()) wide.push_back(1);
    wide[wide.size() - 1] = 2 * wide.back() + 3;
    const Tensor block = full(wide, 1, x.options());
    laid_out = block.slice(-1, 3, wide.back(), 2);
    if (x.dim() == 0) laid_out = laid_out.select(0, 0);
    laid_out.copy_(x);
  } else {
    laid_out = x.contiguous().clone();
  }
  return Tensor(laid_out.array());
}

const char* name(Layout layout) {
  switch (layout) {
    case Layout::contiguous: return "contiguous";
    case Layout::transposed: return "transposed";
    case Layout::strided: return "strided";
    case Layout::channels_last: return "channels_last";
  }
  return "?";
}

}  // namespace gradus::op_cases
