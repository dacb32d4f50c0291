#include "src/layer/run_scan.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/engines/scan/backward.h"
#include "src/engines/scan/scan.h"
#include "src/layer/decay_factors.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

bool IsVector(const Recipe& recipe) { return FamilyOf(recipe) == Family::kGatedVector; }

scan::Weight WeightOf(Importance importance) {
  switch (importance) {
    case Importance::kComplement: return scan::Weight::kComplement;
    case Importance::kRootComplement: return scan::Weight::kRootComplement;
    default: return scan::Weight::kOne;  // beside the input, where there is one
  }
}

scan::OutputNorm NormOf(OutputNorm norm) {
  switch (norm) {
    case OutputNorm::kNone: return scan::OutputNorm::kNone;
    case OutputNorm::kL2: return scan::OutputNorm::kL2;
    case OutputNorm::kRms: return scan::OutputNorm::kRms;
  }
  return scan::OutputNorm::kNone;
}

scan::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  scan::Options options;
  options.weight = WeightOf(recipe.weights.importance);
  options.read_before = recipe.reading.read == Read::kBefore;
  options.normalise_qk = recipe.reading.normalise_qk;
  options.output_norm = NormOf(recipe.reading.output_norm);
  // A vector is read without a query, and so without its scale. One gradient step of size eta from
  // 0: the memory is eta times the sum, so the sum is kept and eta multiplies what is read.
  options.scale = recipe.optimizer.eta;
  if (!IsVector(recipe)) {
    options.scale *= recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim))
                                                : recipe.reading.scale;
  }
  return options;
}

/// The inputs and the constants of a call, which `factors` outlives.
scan::Call CallOf(const Dims& dims, const Inputs& inputs, Needs needs,
                  const std::vector<double>& factors) {
  scan::Call call;
  if (needs != Needs::kWrite) call.q = inputs.q;
  if (needs != Needs::kRead) {
    call.k = inputs.k;
    call.v = inputs.v;
    call.v_im = inputs.v_im;
    call.importance = inputs.importance;
    call.log_decay = inputs.log_decay;
    call.phase = inputs.phase;
    call.dt = inputs.dt;
    call.a = inputs.a;
  }
  call.decay_factors = factors;
  if (inputs.cu_seqlens.defined()) {
    call.cu_seqlens = {inputs.cu_seqlens.as<std::int64_t>(),
                       static_cast<std::size_t>(dims.sequences + 1)};
  }
  return call;
}

/// An entry of the state in the arithmetic's dtype: the state's own, or a copy that goes back.
class Entry {
 public:
  Entry(State& state, std::string_view name, DType dtype, const Shape& shape) {
    if (!state.Get(name).defined()) state.Set(name, Tensor(dtype, shape));
    home_ = state.Get(name);
    if (home_.dtype() == dtype) {
      view_ = home_;
    } else {
      copy_ = Tensor::Copy(home_, dtype);
      view_ = copy_.view();
    }
  }
  const TensorView& view() const { return view_; }
  void Return() const {
    if (copy_.defined()) CopyInto(copy_.view(), home_);
  }

 private:
  TensorView home_, view_;
  Tensor copy_;
};

/// What arithmetic is done in: the dtype of the memory, or that which a new one gets.
DType Arithmetic(const Inputs& inputs, const State& state) {
  if (const TensorView given = state.Get("state"); given.defined()) return given.dtype();
  const TensorView& typed = inputs.v.defined() ? inputs.v : inputs.q;
  const bool wide = typed.defined() && typed.dtype() == DType::kFloat64;
  return wide ? DType::kFloat64 : DType::kFloat32;
}

Shape StateShape(const Recipe& recipe, const Dims& dims) {
  if (IsVector(recipe)) return {dims.states(), dims.heads, dims.value_dim};
  return {dims.states(), dims.heads, dims.key_dim, dims.value_dim};
}

}  // namespace

void RunScan(const Recipe& recipe, const Dims& dims, const Inputs& inputs, State& state,
             const Outputs& outputs, Needs needs, Executor& executor, std::span<std::byte> scratch,
             std::span<std::byte> saved) {
  const DType dtype = Arithmetic(inputs, state);
  const Shape shape = StateShape(recipe, dims);
  const Entry re(state, "state", dtype, shape);
  const std::vector<double> factors = DecayFactors(recipe, dims);
  scan::Call call = CallOf(dims, inputs, needs, factors);
  call.state = re.view();
  call.saved = saved;
  if (needs != Needs::kWrite) call.y = outputs.y;
  const scan::Options options = OptionsOf(recipe, dims);
  if (recipe.weights.phase) {
    const Entry im(state, "state.im", dtype, shape);
    call.state_im = im.view();
    scan::Forward(options, call, executor, scratch);
    im.Return();
  } else {
    scan::Forward(options, call, executor, scratch);
  }
  if (outputs.status.defined()) {
    CopyInto(Tensor(DType::kInt8, outputs.status.shape()).view(), outputs.status);  // all solved
  }
}

std::size_t ScanSavedBytes(const Recipe& recipe, const Dims& dims, DType state) {
  scan::Sizes sizes;
  sizes.key_dim = IsVector(recipe) ? 0 : dims.key_dim;
  sizes.value_dim = dims.value_dim;
  sizes.state = state;
  return scan::SavedBytes(sizes, dims.heads, dims.batch * dims.tokens, recipe.weights.phase);
}

std::size_t ScanScratchBytes(const Recipe& recipe, const Dims& dims, int threads) {
  scan::Sizes sizes;
  sizes.key_dim = IsVector(recipe) ? 0 : dims.key_dim;
  sizes.value_dim = IsVector(recipe) ? dims.heads * dims.value_dim : dims.value_dim;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  sizes.state = DType::kFloat64;  // the wider one, as the dtype is not part of the sizes
  sizes.whole_rows = recipe.reading.output_norm != OutputNorm::kNone;
  return scan::ScratchBytes(sizes, threads);
}

namespace {

/// A tensor with a contiguous last axis: the given one, or a copy.
class Contiguous {
 public:
  explicit Contiguous(const TensorView& view) : view_(view) {
    const int last = view.rank() - 1;
    if (!view.defined() || view.size(last) == 1 || view.stride(last) == 1) return;
    copy_ = Tensor::Copy(view);
    view_ = copy_.view();
  }
  const TensorView& view() const { return view_; }

 private:
  TensorView view_;
  Tensor copy_;
};

/// Gradients where they are wanted, by way of a copy where the last axis is not contiguous.
class Wanted {
 public:
  explicit Wanted(const TensorView& home) : home_(home), contiguous_(home) {}
  const TensorView& view() const { return contiguous_.view(); }
  void Return() const {
    if (home_.defined() && view().data() != home_.data()) CopyInto(view(), home_);
  }

 private:
  TensorView home_;
  Contiguous contiguous_;
};

/// dy of what the output norm was taken of, z: y = z / |z| passes on (dy - y (y . dy)) / |z|, for
/// the root mean square with y . dy / Dv. A row of zeros is not normalised.
Tensor BackNorm(OutputNorm norm, const Tensor& z, const TensorView& dy) {
  Tensor dz(z.dtype(), z.shape());
  const std::int64_t width = z.shape()[3];
  std::vector<double> y(static_cast<std::size_t>(width));
  std::int64_t row = 0;
  for (std::int64_t b = 0; b < dy.size(0); ++b) {
    for (std::int64_t t = 0; t < dy.size(1); ++t) {
      for (std::int64_t h = 0; h < dy.size(2); ++h, row += width) {
        double squares = 0;
        for (std::int64_t c = 0; c < width; ++c) {
          y[static_cast<std::size_t>(c)] = LoadElement(z.data(), z.dtype(), row + c);
          squares += y[static_cast<std::size_t>(c)] * y[static_cast<std::size_t>(c)];
        }
        const double count = norm == OutputNorm::kRms ? static_cast<double>(width) : 1;
        const double size = squares == 0 ? 1 : std::sqrt(squares / count);
        double along = 0;
        for (std::int64_t c = 0; c < width; ++c) {
          y[static_cast<std::size_t>(c)] /= size;
          along += y[static_cast<std::size_t>(c)] * dy.At({b, t, h, c}) / count;
        }
        for (std::int64_t c = 0; c < width; ++c) {
          const double tangent = dy.At({b, t, h, c}) - along * y[static_cast<std::size_t>(c)];
          StoreElement(dz.data(), dz.dtype(), row + c, tangent / size);
        }
      }
    }
  }
  return dz;
}

}  // namespace

void DifferentiateScan(const Recipe& recipe, const Dims& dims, const Inputs& inputs,
                       const State& initial, const TensorView& dy, const State& dstate,
                       const Inputs& dinputs, State& dinitial, Executor& executor,
                       std::span<std::byte> scratch, std::span<std::byte> saved) {
  const DType dtype = Arithmetic(inputs, initial);
  const Shape shape = StateShape(recipe, dims);
  const auto copy_of = [&](const State& state, std::string_view name) {
    const TensorView view = state.Get(name);
    return view.defined() ? Tensor::Copy(view, dtype) : Tensor(dtype, shape);
  };
  const bool complex = recipe.weights.phase;
  const Tensor re = copy_of(initial, "state");
  const Tensor dre = copy_of(dstate, "state");
  Tensor im, dim;
  if (complex) {
    im = copy_of(initial, "state.im");
    dim = copy_of(dstate, "state.im");
  }
  const std::vector<double> factors = DecayFactors(recipe, dims);
  scan::Call call = CallOf(dims, inputs, Needs::kBoth, factors);
  call.state = re.view();
  call.saved = saved;
  if (complex) call.state_im = im.view();
  scan::Options options = OptionsOf(recipe, dims);
  options.output_norm = scan::OutputNorm::kNone;

  const Contiguous given(dy);
  Tensor dz;
  if (recipe.reading.output_norm != OutputNorm::kNone) {
    const Tensor z(dtype, dy.shape());
    const Tensor end = Tensor::Copy(re.view());
    const Tensor end_im = complex ? Tensor::Copy(im.view()) : Tensor();
    scan::Call again = call;
    again.saved = {};
    again.state = end.view();
    if (complex) again.state_im = end_im.view();
    again.y = z.view();
    scan::Forward(options, again, executor);
    dz = BackNorm(recipe.reading.output_norm, z, given.view());
  }

  const Wanted v(dinputs.v), v_im(dinputs.v_im), importance(dinputs.importance);
  const Wanted log_decay(dinputs.log_decay), phase(dinputs.phase);
  const Wanted q(dinputs.q), k(dinputs.k), dt(dinputs.dt), a(dinputs.a);
  const scan::Gradients gradients{v.view(),         v_im.view(),  importance.view(),
                                  log_decay.view(), phase.view(), q.view(),
                                  k.view(),         dt.view(),    a.view()};
  scan::Backward(options, call, dz.defined() ? dz.view() : given.view(), dre.view(),
                 complex ? dim.view() : TensorView(), gradients, executor, scratch);
  for (const Wanted* wanted : {&v, &v_im, &importance, &log_decay, &phase, &q, &k, &dt, &a}) {
    wanted->Return();
  }
  const auto give = [&](std::string_view name, const Tensor& gradient) {
    if (!dinitial.Get(name).defined()) {
      const TensorView from = initial.Get(name);
      dinitial.Set(name, Tensor(from.defined() ? from.dtype() : dtype, gradient.shape()));
    }
    CopyInto(gradient.view(), dinitial.Get(name));
  };
  give("state", dre);
  if (complex) give("state.im", dim);
}

std::size_t ScanGradientScratchBytes(const Recipe& recipe, const Dims& dims, int threads) {
  // The wider dtype, as it is not part of the sizes.
  const scan::Sizes sizes{.key_dim = IsVector(recipe) ? 0 : dims.key_dim,
                          .value_dim = dims.value_dim,
                          .queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads),
                          .state = DType::kFloat64};
  return scan::BackwardScratchBytes({.sizes = sizes,
                                     .heads = dims.heads,
                                     .value_heads = dims.value_heads,
                                     .sequences = dims.states(),
                                     .tokens = dims.batch * dims.tokens,
                                     .length = dims.tokens,
                                     .complex = recipe.weights.phase},
                                    threads);
}

}  // namespace ttr
