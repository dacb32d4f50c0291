#include "src/adapters/ridge_gradient.h"

#include "src/adapters/least_squares_memories.h"
#include "src/recipe/family.h"

namespace ttr {

RidgeGradient::RidgeGradient(const EngineCall& call, const State& initial, const TensorView& wanted)
    : wanted_(wanted),
      in_start_(call.recipe().optimizer.ridge_kind == RidgeKind::kFading),
      starts_(in_start_ && !initial.Get(GramEntry(call.recipe())).defined()),
      ridged_(PhiDim(call.recipe(), call.dims) -
              (call.recipe().function.kind == FunctionClass::kAffine ? 1 : 0)) {}

void RidgeGradient::AskFor(const least_squares::Call& call, least_squares::Gradients& gradients) {
  if (!wanted_.defined()) return;
  if (!in_start_) {
    of_ridge_ = Tensor(DType::kFloat64, {call.a.size(0), call.a.size(1), call.a.size(2)});
    gradients.ridge = of_ridge_;
  } else if (starts_ && !gradients.a.defined()) {  // not causal: no state, yet a start
    of_start_ = Tensor(call.a.dtype(), call.a.shape());
    gradients.a = of_start_;
  }
}

void RidgeGradient::Write(const least_squares::Gradients& gradients) const {
  if (!wanted_.defined()) return;
  const TensorView& each = starts_ ? gradients.a : gradients.ridge;  // absent: 0
  const bool one = wanted_.rank() == 1;
  for (std::int64_t h = 0; h < wanted_.size(0); ++h) {
    double all = 0;
    for (std::int64_t i = 0; i < (one ? ridged_ : wanted_.size(1)); ++i) {
      double sum = 0;
      for (std::int64_t n = 0; each.defined() && n < each.size(0); ++n) {
        sum += starts_ ? each.At({n, h, i, i}) : each.At({n, h, i});
      }
      all += sum;
      if (!one) wanted_.Set({h, i}, sum);
    }
    if (one) wanted_.Set({h}, all);
  }
}

}  // namespace ttr
