// einsum. Each dimension of an operand has a label. Operands are contracted from left to right. Labels that neither the
// result nor a later operand has are summed by a matrix product; if there are none, the product is element-wise.
#include <algorithm>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/linear_algebra.h>

namespace gradus {
namespace {

// The label of a letter is its character code. The dimensions of "..." have the labels -1, -2, …, counted from the
// last.
using Labels = std::vector<int>;

struct Labelled {
  Tensor x;
  Labels labels;
};

bool has(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }
int place_of(const Labels& labels, int label) {
  return static_cast<int>(std::find(labels.begin(), labels.end(), label) - labels.begin());
}

constexpr int kEllipsis = 0;

// Parses a term such as "ij...k" into labels, with kEllipsis for the three dots.
Labels parse_term(std::string_view term, std::string_view equation) {
  Labels labels;
  for (size_t i = 0; i < term.size(); ++i) {
    const char c = term[i];
    if (c == ' ') continue;
    if (c == '.') {
      GRADUS_CHECK(term.substr(i, 3) == "..." && !has(labels, kEllipsis), ValueError, "\"", equation,
                   "\": a '.' that does not belong to a single \"...\" in \"", term, "\"");
      labels.push_back(kEllipsis);
      i += 2;
      continue;
    }
    GRADUS_CHECK((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), ValueError, "\"", equation, "\": '", c,
                 "' is not a letter");
    labels.push_back(c);
  }
  return labels;
}

// Replaces the ellipsis in `labels` by the labels of its `count` dimensions.
Labels with_ellipsis(const Labels& labels, int count) {
  Labels result;
  for (int label : labels) {
    if (label != kEllipsis) result.push_back(label);
    else
      for (int i = count; i >= 1; --i) result.push_back(-i);
  }
  return result;
}

// Takes the diagonal of dimensions that have the same label.
Labelled without_repeats(Labelled operand, std::string_view equation) {
  Labels& labels = operand.labels;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto twin = std::find(labels.begin() + static_cast<int64_t>(i) + 1, labels.end(), labels[i]);
    if (twin == labels.end()) continue;
    const int64_t first = static_cast<int64_t>(i), second = twin - labels.begin();
    GRADUS_CHECK(operand.x.size(first) == operand.x.size(second), ShapeError, "\"", equation, "\": '",
                 static_cast<char>(labels[i]), "' is ", operand.x.size(first), " and ", operand.x.size(second),
                 " in one operand of shape ", operand.x.sizes());
    const int label = labels[i];
    operand.x = operand.x.diagonal(0, first, second, Loc{});
    labels.erase(twin);
    labels.erase(labels.begin() + first);
    labels.push_back(label);
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
  if (!dims.empty()) result.x = operand.x.sum(dims, false, operand.x.dtype(), Loc{});
  return result;
}

// Returns the operand with its dimensions in this order and with dimensions of size 1 for labels that it does not have.
Tensor arranged(const Labelled& operand, const Labels& order) {
  Dims dims;
  for (int label : order)
    if (has(operand.labels, label)) dims.push_back(place_of(operand.labels, label));
  Tensor x = operand.x.permute(dims, Loc{});
  for (size_t i = 0; i < order.size(); ++i)
    if (!has(operand.labels, order[i])) x = x.unsqueeze(static_cast<int64_t>(i), Loc{});
  return x;
}

Labels joined(const Labels& a, const Labels& b, const Labels& c) {
  Labels result = a;
  result.insert(result.end(), b.begin(), b.end());
  result.insert(result.end(), c.begin(), c.end());
  return result;
}

// The product of a and b, summed over the labels that are not in `needed`.
Labelled contracted(Labelled a, Labelled b, const Labels& needed) {
  a = summed(a, joined(needed, b.labels, {}));
  b = summed(b, joined(needed, a.labels, {}));
  Labels batch, rows, columns, inner;
  for (int label : a.labels) (!has(b.labels, label) ? rows : has(needed, label) ? batch : inner).push_back(label);
  for (int label : b.labels)
    if (!has(a.labels, label)) columns.push_back(label);
  const Labels result = joined(batch, rows, columns);
  if (inner.empty()) return {arranged(a, result) * arranged(b, result), result};

  // A size of 1 broadcasts to the other operand's size.
  const auto size_of = [&](int label) {
    const int64_t in_a = has(a.labels, label) ? a.x.size(place_of(a.labels, label)) : 1;
    const int64_t in_b = has(b.labels, label) ? b.x.size(place_of(b.labels, label)) : 1;
    return in_a == 1 ? in_b : in_a;
  };
  const auto sizes_of = [&](const Labels& labels) {
    Shape sizes;
    for (int label : labels) sizes.push_back(size_of(label));
    return sizes;
  };
  const int64_t B = numel_of(sizes_of(batch)), M = numel_of(sizes_of(rows)), N = numel_of(sizes_of(columns)),
                K = numel_of(sizes_of(inner));
  const Labels left = joined(batch, rows, inner), right = joined(batch, inner, columns);
  const Tensor x = arranged(a, left).expand(sizes_of(left), Loc{}).reshape({B, M, K}, Loc{});
  const Tensor y = arranged(b, right).expand(sizes_of(right), Loc{}).reshape({B, K, N}, Loc{});
  return {matmul(x, y, Loc{}).reshape(sizes_of(result), Loc{}), result};
}

// Returns true if forward and the gradient of each operand are a single sum or product, so that half types need no
// float32 in between. That is so if every label that is summed belongs to both operands, and no dimension of size 1 is
// broadcast.
bool is_one_product(const std::vector<Labelled>& terms, const Labels& output) {
  if (terms.size() != 2) return terms.size() == 1;
  const auto fits = [&](const Labelled& operand, const Labelled& other) {
    for (int label : operand.labels) {
      if (!has(other.labels, label) && !has(output, label)) return false;
      if (has(other.labels, label) &&
          operand.x.size(place_of(operand.labels, label)) != other.x.size(place_of(other.labels, label)))
        return false;
    }
    return true;
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
    for (int label : labels)
      if (label != kEllipsis) letters.push_back(label);
    terms.push_back(without_repeats({x, with_ellipsis(labels, rest)}, equation));
  }
  GRADUS_CHECK(terms.size() == operands.size(), ValueError, "\"", equation, "\" names ", terms.size(),
               " operands, got ", operands.size());

  Labels output;
  if (arrow != std::string_view::npos) {
    output = with_ellipsis(parse_term(equation.substr(arrow + 2), equation), ellipsis);
    for (size_t i = 0; i < output.size(); ++i)
      GRADUS_CHECK(output[i] < 0 || (has(letters, output[i]) && place_of(output, output[i]) == static_cast<int>(i)),
                   ValueError, "\"", equation, "\": '", static_cast<char>(output[i]),
                   "' occurs twice in the result or in no operand");
  } else {
    output = with_ellipsis({kEllipsis}, ellipsis);
    std::sort(letters.begin(), letters.end());
    for (int letter : letters)
      if (std::count(letters.begin(), letters.end(), letter) == 1) output.push_back(letter);
  }

  // The sizes of a label must be equal in all operands, or 1.
  for (const Labelled& a : terms)
    for (const Labelled& b : terms)
      for (size_t i = 0; i < a.labels.size(); ++i) {
        if (!has(b.labels, a.labels[i])) continue;
        const int64_t size_a = a.x.sizes()[static_cast<int>(i)], size_b = b.x.size(place_of(b.labels, a.labels[i]));
        const std::string label = a.labels[i] < 0 ? "..." : std::string(1, static_cast<char>(a.labels[i]));
        GRADUS_CHECK(size_a == size_b || size_a == 1 || size_b == 1, ShapeError, "\"", equation, "\": ", label, " is ",
                     size_a, " in operand ", &a - terms.data(), " of shape ", operands[&a - terms.data()].sizes(),
                     " and ", size_b, " in operand ", &b - terms.data(), " of shape ",
                     operands[&b - terms.data()].sizes());
      }

  const auto contract = [&](const TensorList& tensors) {
    for (size_t i = 0; i < terms.size(); ++i) terms[i].x = tensors[i];
    Labelled result = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      Labels needed = output;
      for (size_t j = i + 1; j < terms.size(); ++j) needed = joined(needed, terms[j].labels, {});
      result = contracted(result, terms[i], needed);
    }
    return arranged(summed(result, output), output);
  };
  TensorList tensors;
  for (const Labelled& term : terms) tensors.push_back(term.x);
  return is_one_product(terms, output) ? contract(tensors) : composed_of_list(op, contract, tensors);
}

}  // namespace gradus
