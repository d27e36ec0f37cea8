// Products of matrices and vectors beyond matmul, and distances.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_matrix_products(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), run, torch);
  };
  add("bmm", {{2, 3, 4}, {2, 4, 5}}, [](X x) { return x[0].bmm(x[1]); }, "x[0].bmm(x[1])");
  add("bmm.empty", {{0, 3, 4}, {0, 4, 5}}, [](X x) { return bmm(x[0], x[1]); }, "x[0].bmm(x[1])");
  add("bmm.no_inner", {{2, 3, 0}, {2, 0, 5}}, [](X x) { return bmm(x[0], x[1]); }, "x[0].bmm(x[1])");
  add("mv.no_inner", {{3, 0}, {0}}, [](X x) { return mv(x[0], x[1]); }, "x[0].mv(x[1])");
  add("mv", {{3, 4}, {4}}, [](X x) { return x[0].mv(x[1]); }, "x[0].mv(x[1])");
  add("dot", {{7}, {7}}, [](X x) { return x[0].dot(x[1]); }, "x[0].dot(x[1])").on(floats | integers);
  add("dot.empty", {{0}, {0}}, [](X x) { return dot(x[0], x[1]); }, "x[0].dot(x[1])");
  add("outer", {{3}, {4}}, [](X x) { return x[0].outer(x[1]); }, "x[0].outer(x[1])").on(floats | integers);
  add("addmm", {{3, 5}, {3, 4}, {4, 5}}, [](X x) { return x[0].addmm(x[1], x[2]); }, "x[0].addmm(x[1], x[2])");
  add("addmm.scaled", {{5}, {3, 4}, {4, 5}}, [](X x) { return addmm(x[0], x[1], x[2], 0.5, -2); },
      "torch.addmm(x[0], x[1], x[2], beta=0.5, alpha=-2)");
  add("addmm.beta_0", {special({3, 5}), {3, 4}, {4, 5}}, [](X x) { return addmm(x[0], x[1], x[2], 0); },
      "torch.addmm(x[0], x[1], x[2], beta=0)");
  add("addmm.beta_0_broadcast", {{5}, {3, 4}, {4, 5}}, [](X x) { return addmm(x[0], x[1], x[2], 0, 2); },
      "torch.addmm(x[0], x[1], x[2], beta=0, alpha=2)");
  add("addmm.no_inner", {{3, 5}, {3, 0}, {0, 5}}, [](X x) { return addmm(x[0], x[1], x[2]); },
      "torch.addmm(x[0], x[1], x[2])");
  add("addmv.beta_0", {special({3}), {3, 4}, {4}}, [](X x) { return addmv(x[0], x[1], x[2], 0); },
      "torch.addmv(x[0], x[1], x[2], beta=0)");
  add("baddbmm.beta_0", {special({2, 3, 5}), {2, 3, 4}, {2, 4, 5}}, [](X x) { return baddbmm(x[0], x[1], x[2], 0); },
      "torch.baddbmm(x[0], x[1], x[2], beta=0)");
  add("baddbmm.no_inner", {{2, 3, 5}, {2, 3, 0}, {2, 0, 5}}, [](X x) { return baddbmm(x[0], x[1], x[2]); },
      "torch.baddbmm(x[0], x[1], x[2])");
  add("addmv", {{3}, {3, 4}, {4}}, [](X x) { return addmv(x[0], x[1], x[2], 2, 0.5); },
      "torch.addmv(x[0], x[1], x[2], beta=2, alpha=0.5)");
  add("baddbmm", {{2, 3, 5}, {2, 3, 4}, {2, 4, 5}}, [](X x) { return x[0].baddbmm(x[1], x[2], 0.5, 2); },
      "torch.baddbmm(x[0], x[1], x[2], beta=0.5, alpha=2)");
  add("trace", {{3, 4}}, [](X x) { return trace(x[0]); }, "x[0].trace()").on(floats | integers);
  add("cross", {{4, 3}, {4, 3}}, [](X x) { return cross(x[0], x[1], 1); }, "torch.cross(x[0], x[1], 1)")
      .on(floats | integers);
  add("cross.first", {{2, 3, 4, 3}, {2, 3, 4, 3}}, [](X x) { return cross(x[0], x[1]); }, "torch.cross(x[0], x[1], 1)");
  add("tensordot", {{2, 3, 4}, {4, 3, 5}}, [](X x) { return tensordot(x[0], x[1], {1, 2}, {1, 0}); },
      "torch.tensordot(x[0], x[1], ([1, 2], [1, 0]))");
  add("tensordot.outer", {{2, 3}, {4}}, [](X x) { return tensordot(x[0], x[1], {}, {}); },
      "torch.tensordot(x[0], x[1], 0)");
  add("tensordot.all", {{2, 3}, {2, 3}}, [](X x) { return tensordot(x[0], x[1], {0, 1}, {0, 1}); },
      "torch.tensordot(x[0], x[1], 2)");
}

static void add_einsum(CaseList& cases) {
#define EINSUM(name, equation, ...) \
  cases.add(name, __VA_ARGS__, [](X x) { return einsum(equation, x); }, "torch.einsum('" equation "', *x)")
  EINSUM("einsum", "ij,jk->ik", {{2, 3}, {3, 4}});
  EINSUM("einsum.integer", "ij,jk->ik", {{2, 3}, {3, 4}}).on(integers);
  EINSUM("einsum.transposed", "ij->ji", {{2, 3}});
  EINSUM("einsum.implicit", "ba", {{2, 3}});
  EINSUM("einsum.implicit_product", "ik,kj", {{2, 3}, {3, 4}});
  EINSUM("einsum.sum", "ij->", {{2, 3}});
  EINSUM("einsum.rows", "ij->i", {{2, 3}});
  EINSUM("einsum.trace", "ii", {{3, 3}});
  EINSUM("einsum.diagonal", "ii->i", {{3, 3}});
  EINSUM("einsum.diagonals", "iji->ij", {{3, 2, 3}});
  EINSUM("einsum.diagonal_of_four", "ijij->ji", {{2, 3, 2, 3}});
  EINSUM("einsum.dot", " i , i -> ", {{4}, {4}});
  EINSUM("einsum.outer", "i,j->ij", {{3}, {4}});
  EINSUM("einsum.hadamard", "ij,ij->ij", {{2, 3}, {2, 3}});
  EINSUM("einsum.batch", "bij,bjk->bik", {{2, 3, 4}, {2, 4, 5}});
  EINSUM("einsum.heads", "bqhd,bkhd->bhqk", {{2, 3, 2, 4}, {2, 5, 2, 4}});
  EINSUM("einsum.ellipsis", "...ij,...jk->...ik", {{2, 3, 4}, {2, 4, 5}});
  EINSUM("einsum.ellipsis_broadcast", "...ij,...j->...i", {{2, 1, 3, 4}, {5, 4}});
  EINSUM("einsum.ellipsis_last", "i...->...i", {{2, 3, 4}});
  EINSUM("einsum.ellipsis_implicit", "...a,b...", {{2, 3}, {4, 2}});
  EINSUM("einsum.ellipsis_empty", "...i->...", {{3}});
  EINSUM("einsum.ellipsis_summed", "...ij->ij", {{4, 2, 3}});
  EINSUM("einsum.three", "ij,jk,kl->il", {{2, 3}, {3, 4}, {4, 2}});
  EINSUM("einsum.bilinear", "bn,anm,bm->ba", {{2, 3}, {5, 3, 4}, {2, 4}});
  EINSUM("einsum.summed_alone", "ij,jk->j", {{2, 3}, {3, 4}});
  EINSUM("einsum.size_one", "ij,jk->ik", {{2, 1}, {3, 4}});
  EINSUM("einsum.capitals", "bA,Ab", {{2, 3}, {3, 2}});
  EINSUM("einsum.empty", "ij,jk->ik", {{2, 0}, {0, 4}});
  EINSUM("einsum.scalars", ",i->i", {{}, {3}});
#undef EINSUM
}

static void add_distances(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), run, torch);
  };
  add("cosine_similarity", {{3, 4}, {3, 4}}, [](X x) { return cosine_similarity(x[0], x[1]); },
      "F.cosine_similarity(x[0], x[1])");
  add("cosine_similarity.broadcast", {{3, 1, 4}, {5, 4}}, [](X x) { return cosine_similarity(x[0], x[1], -1); },
      "F.cosine_similarity(x[0], x[1], -1)");
  add("cosine_similarity.zero", {{2, 3}, {2, 3}}, [](X x) { return cosine_similarity(x[0] * 0, x[1]); },
      "F.cosine_similarity(x[0] * 0, x[1])").differentiable(0);
  add("pairwise_distance", {{3, 4}, {3, 4}}, [](X x) { return pairwise_distance(x[0], x[1]); },
      "F.pairwise_distance(x[0], x[1])");
  add("pairwise_distance.one", {{3, 4}, {4}}, [](X x) { return pairwise_distance(x[0], x[1], 1, 1e-6, true); },
      "F.pairwise_distance(x[0], x[1], 1, keepdim=True)");
  add("pairwise_distance.three", {{3, 4}, {3, 4}}, [](X x) { return pairwise_distance(x[0], x[1], 3); },
      "F.pairwise_distance(x[0], x[1], 3)");
}

void add_linear_algebra(CaseList& cases) {
  add_matrix_products(cases);
  add_einsum(cases);
  add_distances(cases);
}

}  // namespace gradus::op_cases
