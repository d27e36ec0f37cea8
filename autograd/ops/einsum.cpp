// einsum. Each dimension of an operand has a label. Operands are contracted from left to right. Labels that neither the
// result nor a later operand has are summed by a matrix product; if there are none, the product is element-wise.
#include <algorithm>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/linear_algebra.h>

namespace gradus {
namespace {

// A label is a letter, or, for the dimensions of "...", a digit: '0' for the last of them, '1' for the one before.
using Labels = std::string;

struct Labelled {
  Tensor x;
  Labels labels;
};

constexpr char kEllipsis = '.';

bool has(const Labels& labels, char label) { return labels.find(label) != Labels::npos; }
bool is_digit(char label) { return label >= '0' && label <= '9'; }

// Parses a term such as "ij...k" into labels, with kEllipsis for the three dots.
Labels parse_term(std::string_view term, std::string_view equation) {
  Labels labels;
  for (size_t i = 0; i < term.size(); ++i) {
    const char c = term[i];
    if (c == ' ') continue;
    if (c == '.') {
      GRADUS_CHECK(term.substr(i, 3) == "..." && !has(labels, kEllipsis), ValueError, "\"", equation,
                   "\": a '.' that does not belong to a single \"...\" in \"", term, "\"");
      i += 2;
    } else {
      GRADUS_CHECK((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), ValueError, "\"", equation, "\": '", c,
                   "' is not a letter");
    }
    labels.push_back(c);
  }
  return labels;
}

// Replaces the ellipsis in `labels` by the labels of its `count` dimensions.
Labels with_ellipsis(Labels labels, int count) {
  static_assert(kMaxDims == 8, "the string below has a digit for each dimension");
  const size_t dots = labels.find(kEllipsis);
  if (dots != Labels::npos) labels.replace(dots, 1, "76543210", static_cast<size_t>(kMaxDims - count), Labels::npos);
  return labels;
}

// Takes the diagonal of dimensions that have the same label.
Labelled without_repeats(Labelled operand, std::string_view equation) {
  Labels& labels = operand.labels;
  for (size_t i = 0; i < labels.size(); ++i) {
    const char label = labels[i];
    const size_t twin = labels.find(label, i + 1);
    if (twin == Labels::npos) continue;
    const int64_t first = static_cast<int64_t>(i), second = static_cast<int64_t>(twin);
    GRADUS_CHECK(operand.x.size(first) == operand.x.size(second), ShapeError, "\"", equation, "\": '", label, "' is ",
                 operand.x.size(first), " and ", operand.x.size(second), " in one operand of shape ",
                 operand.x.sizes());
    operand.x = operand.x.diagonal(0, first, second);
    labels.erase(twin, 1).erase(i, 1).push_back(label);
    i = static_cast<size_t>(-1);  // dimensions have moved: start again
  }
  return operand;
}

// Sums over the labels that are not in `needed`.
Labelled summed(const Labelled& operand, const Labels& needed) {
  Labelled result{operand.x, {}};
  Dims dims;
  for (size_t i = 0; i < operand.labels.size(); ++i) {
    if (has(needed, operand.labels[i])) result.labels.push_back(operand.labels[i]);
    else dims.push_back(static_cast<int64_t>(i));
  }
  if (!dims.empty()) result.x = operand.x.sum(dims, false, operand.x.dtype());
  return result;
}

// Size of the dimension with this label; 1 if the operand does not have it.
int64_t size_of(const Labelled& operand, char label) {
  const size_t axis = operand.labels.find(label);
  return axis == Labels::npos ? 1 : operand.x.size(static_cast<int64_t>(axis));
}

// Returns the operand with its dimensions in this order and with dimensions of size 1 for labels that it does not have.
Tensor arranged(const Labelled& operand, const Labels& order) {
  Dims dims;
  for (char label : order)
    if (has(operand.labels, label)) dims.push_back(static_cast<int64_t>(operand.labels.find(label)));
  Tensor x = operand.x.permute(dims);
  for (size_t i = 0; i < order.size(); ++i)
    if (!has(operand.labels, order[i])) x = x.unsqueeze(static_cast<int64_t>(i));
  return x;
}

// The product of a and b, summed over the labels that are not in `needed`.
Labelled contracted(Labelled a, Labelled b, const Labels& needed) {
  a = summed(a, needed + b.labels);
  b = summed(b, needed + a.labels);
  Labels batch, rows, columns, inner;
  for (char label : a.labels) (!has(b.labels, label) ? rows : has(needed, label) ? batch : inner).push_back(label);
  for (char label : b.labels)
    if (!has(a.labels, label)) columns.push_back(label);
  const Labels result = batch + rows + columns;
  if (inner.empty()) return {arranged(a, result) * arranged(b, result), result};

  const auto sizes_of = [&](const Labels& labels) {  // a size of 1 broadcasts to the other operand's size
    Shape sizes;
    for (char label : labels) sizes.push_back(size_of(size_of(a, label) == 1 ? b : a, label));
    return sizes;
  };
  const int64_t B = numel_of(sizes_of(batch)), M = numel_of(sizes_of(rows)), N = numel_of(sizes_of(columns)),
                K = numel_of(sizes_of(inner));
  const Labels left = batch + rows + inner, right = batch + inner + columns;
  const Tensor x = arranged(a, left).expand(sizes_of(left)).reshape({B, M, K});
  const Tensor y = arranged(b, right).expand(sizes_of(right)).reshape({B, K, N});
  return {matmul(x, y).reshape(sizes_of(result)), result};
}

// Returns true if forward and the gradient of each operand are a single sum or product, so that half types need no
// float32 in between. That is so if every label that is summed belongs to both operands, and no dimension of size 1 is
// broadcast.
bool is_one_product(const std::vector<Labelled>& terms, const Labels& output) {
  if (terms.size() != 2) return terms.size() == 1;
  const auto fits = [&](const Labelled& operand, const Labelled& other) {
    return std::all_of(operand.labels.begin(), operand.labels.end(), [&](char label) {
      return has(other.labels, label) ? size_of(operand, label) == size_of(other, label) : has(output, label);
    });
  };
  return fits(terms[0], terms[1]) && fits(terms[1], terms[0]);
}

}  // namespace

Tensor einsum(std::string_view equation, const TensorList& operands, Loc where) {
  OpScope op("einsum", where);
  GRADUS_CHECK(!operands.empty(), ValueError, "\"", equation, "\" needs at least one operand");
  const size_t arrow = equation.find("->");
  std::string_view inputs = equation.substr(0, arrow);
  std::vector<Labelled> terms;
  Labels letters;  // of all inputs, with repeats
  int ellipsis = 0;
  bool last = false;
  while (!last) {
    const size_t comma = inputs.find(',');
    last = comma == std::string_view::npos;
    const Labels labels = parse_term(inputs.substr(0, comma), equation);
    if (!last) inputs.remove_prefix(comma + 1);
    const size_t number = terms.size();
    GRADUS_CHECK(number < operands.size(), ValueError, "\"", equation, "\" names more operands than the ",
                 operands.size(), " given");
    const Tensor& x = operands[number];
    const int named = static_cast<int>(labels.size()) - has(labels, kEllipsis), rest = ndim_of(x) - named;
    GRADUS_CHECK(has(labels, kEllipsis) ? rest >= 0 : rest == 0, ShapeError, "\"", equation, "\": operand ", number,
                 " has shape ", x.sizes(), " but ", named, " letters");
    ellipsis = std::max(ellipsis, has(labels, kEllipsis) ? rest : 0);
    letters += labels;
    terms.push_back(without_repeats({x, with_ellipsis(labels, rest)}, equation));
  }
  GRADUS_CHECK(terms.size() == operands.size(), ValueError, "\"", equation, "\" names ", terms.size(),
               " operands, got ", operands.size());

  Labels output;
  if (arrow != std::string_view::npos) {
    output = with_ellipsis(parse_term(equation.substr(arrow + 2), equation), ellipsis);
    for (size_t i = 0; i < output.size(); ++i)
      GRADUS_CHECK(is_digit(output[i]) || (has(letters, output[i]) && output.find(output[i]) == i), ValueError, "\"",
                   equation, "\": '", output[i], "' occurs twice in the result or in no operand");
  } else {
    output = with_ellipsis({kEllipsis}, ellipsis);
    std::sort(letters.begin(), letters.end());
    for (char letter : letters)
      if (letter != kEllipsis && letters.find(letter) == letters.rfind(letter)) output.push_back(letter);
  }

  // The sizes of a label must be equal in all operands, or 1.
  for (const Labelled& a : terms)
    for (const Labelled& b : terms)
      for (char label : a.labels) {
        const int64_t size_a = size_of(a, label), size_b = size_of(b, label);
        GRADUS_CHECK(size_a == size_b || size_a == 1 || size_b == 1, ShapeError, "\"", equation,
                     "\": ", is_digit(label) ? "..." : std::string(1, label), " is ", size_a, " in operand ",
                     &a - terms.data(), " of shape ", operands[&a - terms.data()].sizes(), " and ", size_b,
                     " in operand ", &b - terms.data(), " of shape ", operands[&b - terms.data()].sizes());
      }

  const auto contract = [&](const TensorList& tensors) {
    for (size_t i = 0; i < terms.size(); ++i) terms[i].x = tensors[i];
    Labelled result = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      Labels needed = output;
      for (size_t j = i + 1; j < terms.size(); ++j) needed += terms[j].labels;
      result = contracted(result, terms[i], needed);
    }
    return arranged(summed(result, output), output);
  };
  TensorList tensors;
  for (const Labelled& term : terms) tensors.push_back(term.x);
  return is_one_product(terms, output) ? contract(tensors) : composed(op, contract, tensors);
}

}  // namespace gradus
