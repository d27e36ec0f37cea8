// The op-case list: one entry per way to call an operator. The tests run it on every backend, element type and layout
// against golden values from PyTorch, against the naive backend and against finite differences; benchmarks time it.
//
// A new operator needs one entry in the file of its family, the same call in Python beside the one in C++:
//
//   cases.add("tanh", {{3, 5}}, [](X x) { return tanh(x[0]); }, "x[0].tanh()").keeps_layout();
//
// and a run of tests/golden/make_golden.py (with the name of the family, for that one alone).
#pragma once

#include <deque>
#include <string>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/tests/compare.h>

namespace gradus::op_cases {

/// What numbers an input holds. Floating ones are odd multiples of 1/128 below 2 in magnitude: exact in every floating
/// type, never zero and, while a case has at most 256 of them, all different, so that neither ties nor rounding of the
/// inputs blur a comparison.
enum class Fill : uint8_t {
  any,       ///< in (-2, 2); integers in [-4, 4], unsigned in [0, 4]
  positive,  ///< in (1/2, 2); integers in [1, 4]
  nonzero,   ///< 1/4 < |x| < 2; integers as `any` without 0
  unit,      ///< in (0, 1)
  ties,      ///< -1, 0 or 1: no finite differences here
  special,   ///< NaN, infinities, zeros of both signs, ones, the largest and the smallest numbers
  corner,       ///< zeros of both signs, ones, infinities, NaN, 1/2, -2 and numbers of 20 binary digits, in turn
  corner_rows,  ///< each of the same for as many elements as there are: with `corner`, all pairs
  index,     ///< integers in [0, bound)
};

/// Shape and contents of one input.
struct Input {
  Input(std::initializer_list<int64_t> shape) : shape(shape) {}  // NOLINT(google-explicit-constructor)
  Input(const Shape& shape, Fill fill) : shape(shape), fill(fill) {}
  Shape shape;
  Fill fill = Fill::any;
  /// Element type whatever the case runs in: indices and masks.
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
/// int64 in [0, bound).
Input index(const Shape& shape, int64_t bound);
/// Booleans.
Input mask(const Shape& shape);

/// Sets of element types that a case runs in.
enum Types : uint8_t {
  wide_floats = 1,  ///< float64 and float32
  half_floats = 2,
  integers = 4,
  booleans = 8,
  floats = wide_floats | half_floats,
  all_types = floats | integers | booleans
};

/// What the strides of the results are checked for, whatever the layout of the inputs.
enum class Results : uint8_t {
  any,
  keep_layout,  ///< dense first input: its strides (element-wise operators)
  image,        ///< channels-last if an image or weight of four dimensions is
  view,         ///< shares the first input's storage
};

using X = const TensorList&;
using Run = std::function<TensorList(X)>;

struct OpCase {
  std::string name;   ///< "conv2d.stride"; the operator comes before the first point
  std::string family;  ///< "conv": the file of the case, and of its golden values
  std::vector<Input> inputs;
  Run run;
  std::string torch;  ///< the same call in Python; empty: no golden values
  uint8_t types = floats;
  int order = 2;      ///< how often the results can be differentiated: 0, 1 or 2
  test::Tolerance tolerances;  ///< of the results; gradients may be off by more (op_testing::differences)
  bool contiguous_only = false;
  bool finite_differences = true;
  bool has_states = false;
  Results results = Results::any;
  std::optional<DType> result_dtype;

  OpCase& on(int types_) { types = static_cast<uint8_t>(types_); return *this; }
  OpCase& differentiable(int times) { order = times; return *this; }
  /// Tolerances where the tests' own are too narrow: .tolerance({.f32 = 1e-4}) leaves those of the other types alone.
  OpCase& tolerance(const test::Tolerance& wider) { tolerances = wider; return *this; }
  /// Views and strides whose meaning depends on the input's layout.
  OpCase& only_contiguous() { contiguous_only = true; return *this; }
  /// No finite differences: of compositions of operators that have cases of their own, where they would take long.
  OpCase& without_finite_differences() { finite_differences = false; return *this; }
  /// Results without a history are states, such as running statistics: functions of the inputs that are not meant to
  /// be differentiated. Otherwise finite differences find a result whose history is missing.
  OpCase& gives_states() { has_states = true; return *this; }
  OpCase& keeps_layout() { results = Results::keep_layout; return *this; }
  OpCase& is_image() { results = Results::image; return *this; }
  OpCase& is_view() { results = Results::view; return *this; }
  /// Results of this type whatever the inputs'.
  OpCase& gives(DType dtype) { result_dtype = dtype; return *this; }

  std::string op() const { return name.substr(0, name.find('.')); }
  bool runs_in(DType dtype) const;
  /// True if finite differences are wanted and no input sits on a kink, so that they mean something.
  bool smooth() const;
  /// True if an input has special numbers: as some are huge, each element of a result is compared by its own size.
  bool has_special_numbers() const;
};

class CaseList {
 public:
  /// Cases added from now on belong to this family.
  void begin_family(std::string name) { family_ = std::move(name); }
  OpCase& add(std::string name, std::vector<Input> inputs, Tensor (*run)(X), std::string torch = "");
  OpCase& add(std::string name, std::vector<Input> inputs, std::tuple<Tensor, Tensor> (*run)(X), std::string torch = "");
  OpCase& add(std::string name, std::vector<Input> inputs, Run run, std::string torch = "");
  /// Drops the cases of operators that `operators`, separated by commas, does not name. A name of no case is a
  /// ValueError: tests of no cases would pass.
  void keep(std::string_view operators);
  const std::deque<OpCase>& cases() const { return cases_; }

 private:
  std::deque<OpCase> cases_;
  std::string family_;
};

/// Every case of the library, or, where GRADUS_OP_CASES in the environment lists operators ("sum,conv2d"), theirs
/// alone.
const std::deque<OpCase>& all_cases();
/// The case of that name; ValueError if there is none.
const OpCase& find_case(std::string_view name);

// One function per family, each in the file of its name and listed in op_case.cpp.
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

/// The inputs of a case as cpu tensors of `dtype` (those of a fixed type keep it); the same numbers in every run.
TensorList make_inputs(const OpCase& op_case, DType dtype);
/// Numbers of x's shape, type and device, drawn as Fill::any from `key`: gradients to start a backward pass with.
Tensor make_like(const Tensor& x, const std::string& key);

/// How an input lies in memory.
enum class Layout : uint8_t {
  contiguous,
  transposed,     ///< dense, axes in reverse order
  strided,        ///< every second element of a larger block, behind an offset
  channels_last,  ///< four dimensions; others stay contiguous
};
/// The numbers of `x` in that layout, as a leaf.
Tensor lay_out(const Tensor& x, Layout layout);
const char* name(Layout layout);

}  // namespace gradus::op_cases
