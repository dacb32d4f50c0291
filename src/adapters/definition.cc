// The definition as the engine of every recipe that no other takes.

#include "src/adapters/registry.h"
#include "src/definition/sequence.h"
#include "src/definition/size.h"
#include "src/recipe/family.h"
#include "ttr/plan.h"

namespace ttr {
namespace {

definition::Mode ModeOf(Needs needs) {
  switch (needs) {
    case Needs::kBoth: return definition::Mode::kForward;
    case Needs::kWrite: return definition::Mode::kMemorize;
    case Needs::kRead: return definition::Mode::kRetrieve;
  }
  return definition::Mode::kForward;
}

class Definition final : public Engine {
 public:
  std::string_view name() const override { return kDefinition; }
  bool Covers(const Recipe&) const override { return true; }
  // What the plan says of recipes that no other engine covers.
  const char* Obstacle(const Recipe& recipe) const override {
    return FamilyOf(recipe) == Family::kKernelDescent
               ? "the steps of every prefix multiply with a Gram matrix of its own"
               : "its memory is not a linear map";
  }
  double NumberBytes() const override { return 8; }

  double WorkBytes(const Recipe& recipe, const Dims& dims, std::int64_t pairs,
                   bool) const override {
    return definition::WorkBytes(recipe, dims, pairs);
  }

  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const double phi = static_cast<double>(PhiDim(recipe, dims));
    const double dv = static_cast<double>(dims.value_dim);
    const double pairs = static_cast<double>(dims.tokens) / 2;  // causal average
    switch (FamilyOf(recipe)) {
      case Family::kKernelSmoother: return pairs * 2 * (phi + dv);
      case Family::kKernelDescent:
        return pairs * (2 * (phi + dv) + 2 * static_cast<double>(recipe.optimizer.steps) * pairs);
      case Family::kLocalPolynomial: {
        const double monomials = definition::MonomialCount(phi, recipe.function.degree);
        return pairs * (2 * (phi + dv) + monomials * monomials) +
               monomials * monomials * monomials / 3;
      }
      default: return 0;  // families of other engines
    }
  }

  bool HasReport(const ReportField&) const override { return true; }
  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    definition::RunSequences(ModeOf(call.needs), {call.recipe(), call.dims, call.inputs}, state,
                             outputs, call.executor);
  }
};

}  // namespace

const Engine& DefinitionEngine() {
  static const Definition engine;
  return engine;
}

}  // namespace ttr
