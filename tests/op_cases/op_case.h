// The list of op cases: one entry for each way to call an operator. The tests run it on every backend, element type and
// layout and compare the results with golden values from PyTorch, with the naive backend and with finite differences.
// Benchmarks time it.
//
// A new operator needs an entry in the file of its family, with the same call in C++ and in Python:
//
//   cases.add("tanh", {{3, 5}}, [](X x) { return tanh(x[0]); }, "x[0].tanh()").keeps_layout();
//
// and a run of tests/golden/make_golden.py (with the name of the family to update only that family).
#pragma once

#include <deque>
#include <string>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/tests/compare.h>

namespace gradus::op_cases {

/// The numbers in an input. Floating-point inputs are odd multiples of 1/128 below 2 in magnitude: exact in every
/// floating type, never zero and, if a case has at most 256 of them, all different, so that neither ties nor rounding
/// of the inputs affect a comparison.
enum class Fill : uint8_t {
  any,       ///< in (-2, 2); integers in [-4, 4], unsigned in [0, 4]
  positive,  ///< in (1/2, 2); integers in [1, 4]
  nonzero,   ///< 1/4 < |x| < 2; integers as `any` without 0
  unit,      ///< in (0, 1)
  ties,      ///< -1, 0 or 1; no finite differences
  special,   ///< NaN, infinities, zeros of both signs, ones, the largest and the smallest numbers
  corner,       ///< zeros of both signs, ones, infinities, NaN, 1/2, -2 and numbers of 20 bits, repeatedly
  corner_rows,  ///< repeats each number of `corner` as often as there are numbers; with `corner`, all pairs
  index,     ///< integers in [0, bound)
};

/// Shape and content of one input.
struct Input {
  Input(std::initializer_list<int64_t> shape) : shape(shape) {}  // NOLINT(google-explicit-constructor)
  Input(const Shape& shape, Fill fill) : shape(shape), fill(fill) {}
  Shape shape;
  Fill fill = Fill::any;
  /// Element type in every run of the case, for indices and masks.
  std::optional<DType> dtype;
  int64_t bound = 0;
};
inline Input positive(const Shape& shape) { return {shape, Fill::positive}; }
inline Input nonzero(const Shape& shape) { return {shape, Fill::nonzero}; }
inline Input unit(const Shape& shape) { return {shape, Fill::unit}; }
inline Input ties(const Shape& shape) { return {shape, Fill::ties}; }
inline Input special(const Shape& shape) { return {shape, Fill::special}; }
inline Input corner(const Shape& shape) { return {shape, Fill::corner}; }
inline Input corner_rows(const Shape& shape) { return {shape, Fill::corner_rows}; }
/// An input of int64 in [0, bound).
Input index(const Shape& shape, int64_t bound);
/// An input of booleans.
Input mask(const Shape& shape);

/// Sets of element types in which a case runs.
enum Types : uint8_t {
  wide_floats = 1,  ///< float64 and float32
  half_floats = 2,
  integers = 4,
  booleans = 8,
  floats = wide_floats | half_floats,
  all_types = floats | integers | booleans
};

/// The expected strides of the results, for any layout of the inputs.
enum class Results : uint8_t {
  any,
  keep_layout,  ///< strides of the first input if it is dense (element-wise operators)
  image,        ///< channels-last if a four-dimensional image or weight is
  view,         ///< shares the first input's storage
};

using X = const TensorList&;
using Run = std::function<TensorList(X)>;

struct OpCase {
  std::string name;   ///< "conv2d.stride"; the part before the first point is the operator
  std::string family;  ///< "conv": name of the file with the case and its golden values
  std::vector<Input> inputs;
  Run run;
  std::string torch;  ///< the same call in Python; if empty, there are no golden values
  uint8_t types = floats;
  int order = 2;      ///< how often the results can be differentiated: 0, 1 or 2
  test::Tolerance tolerances;  ///< for results; gradients may differ by more (op_testing::differences)
  bool contiguous_only = false;
  bool finite_differences = true;
  bool has_states = false;
  Results results = Results::any;
  std::optional<DType> result_dtype;

  OpCase& on(int types_) { types = static_cast<uint8_t>(types_); return *this; }
  OpCase& differentiable(int times) { order = times; return *this; }
  /// Sets tolerances if the defaults are too narrow: .tolerance({.f32 = 1e-4}) does not change those of other types.
  OpCase& tolerance(const test::Tolerance& wider) { tolerances = wider; return *this; }
  /// For views and strides whose meaning depends on the input's layout.
  OpCase& only_contiguous() { contiguous_only = true; return *this; }
  /// Skips finite differences, which would take long, for compositions of operators that have their own cases.
  OpCase& without_finite_differences() { finite_differences = false; return *this; }
  /// Results without a history are states, such as running statistics: functions of the inputs that are not meant to be
  /// differentiated. Without this, finite differences report a result whose history is missing.
  OpCase& gives_states() { has_states = true; return *this; }
  OpCase& keeps_layout() { results = Results::keep_layout; return *this; }
  OpCase& is_image() { results = Results::image; return *this; }
  OpCase& is_view() { results = Results::view; return *this; }
  /// Results are of this type, whatever the type of the inputs.
  OpCase& gives(DType dtype) { result_dtype = dtype; return *this; }

  std::string op() const { return name.substr(0, name.find('.')); }
  bool runs_in(DType dtype) const;
  /// True if finite differences are requested and meaningful, because no input is at a kink.
  bool smooth() const;
  /// True if an input has special numbers. Some are huge, so that each element of a result is compared relative to its
  /// own magnitude.
  bool has_special_numbers() const;
};

class CaseList {
 public:
  /// Sets the family of the cases that are added from now on.
  void begin_family(std::string name) { family_ = std::move(name); }
  OpCase& add(std::string name, std::vector<Input> inputs, Tensor (*run)(X), std::string torch = "");
  OpCase& add(std::string name, std::vector<Input> inputs, std::tuple<Tensor, Tensor> (*run)(X), std::string torch = "");
  OpCase& add(std::string name, std::vector<Input> inputs, Run run, std::string torch = "");
  /// Removes the cases of operators that are not in the comma-separated list `operators`. A name without cases is a
  /// ValueError, because tests without cases would pass.
  void keep(std::string_view operators);
  const std::deque<OpCase>& cases() const { return cases_; }

 private:
  std::deque<OpCase> cases_;
  std::string family_;
};

/// All cases of the library or, if the environment variable GRADUS_OP_CASES lists operators ("sum,conv2d"), only
/// theirs.
const std::deque<OpCase>& all_cases();
/// Returns the case of that name. Throws a ValueError if there is none.
const OpCase& find_case(std::string_view name);

// One function for each family, in the file of its name and listed in op_case.cpp.
void add_elementwise(CaseList& cases);
void add_comparisons(CaseList& cases);
void add_compositions(CaseList& cases);
void add_in_place(CaseList& cases);
void add_creation(CaseList& cases);
void add_shape(CaseList& cases);
void add_reduce(CaseList& cases);
void add_matmul(CaseList& cases);
void add_loss(CaseList& cases);
void add_conv(CaseList& cases);
void add_image(CaseList& cases);
void add_activation(CaseList& cases);
void add_sort(CaseList& cases);
void add_index(CaseList& cases);
void add_linear_algebra(CaseList& cases);
void add_pool(CaseList& cases);
void add_resample(CaseList& cases);
void add_norm(CaseList& cases);
void add_losses(CaseList& cases);
void add_attention(CaseList& cases);
void add_layers(CaseList& cases);
void add_corners(CaseList& cases);

/// The inputs of a case as CPU tensors of `dtype` (inputs with a fixed type keep it). The numbers are the same in every
/// run.
TensorList make_inputs(const OpCase& op_case, DType dtype);
/// Numbers in the shape, type and device of x, drawn as Fill::any from `key`. Used as gradients at the start of a
/// backward pass.
Tensor make_like(const Tensor& x, const std::string& key);

/// Memory layout of an input.
enum class Layout : uint8_t {
  contiguous,
  transposed,     ///< dense, axes in reverse order
  strided,        ///< every second element of a larger block, with an offset
  channels_last,  ///< for four dimensions; others remain contiguous
};
/// Copies `x` to that layout, as a leaf.
Tensor lay_out(const Tensor& x, Layout layout);
const char* name(Layout layout);

}  // namespace gradus::op_cases
