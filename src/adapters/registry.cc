#include "src/adapters/registry.h"

namespace ttr {
namespace {

std::vector<const Engine*>& List() {
  static std::vector<const Engine*> engines{&CurvatureEngine(),
                                            &FastWeightsEngine(),
                                            &ScanEngine(),
                                            &LeastSquaresEngine(),
                                            &RotatedLeastSquaresEngine(),
                                            &KernelSmootherEngine(),
                                            &KernelDictionaryEngine(),
                                            &WindowRegressionEngine(),
                                            &KernelRegressionEngine(),
                                            &LocalPolynomialEngine(),
                                            &NetworkEngine(),
                                            &DefinitionEngine()};
  return engines;
}

}  // namespace

const std::vector<const Engine*>& AllEngines() { return List(); }

const Engine& CoveringEngine(const Recipe& recipe) {
  for (const Engine* engine : List()) {
    if (engine->Covers(recipe)) return *engine;
  }
  return DefinitionEngine();
}

const Engine& EngineFor(const Engine& planned, const Recipe& recipe, const Dims& dims) {
  return planned.SizeObstacle(recipe, dims) == nullptr ? planned : DefinitionEngine();
}

const Engine* FindEngine(std::string_view name) {
  for (const Engine* engine : List()) {
    if (engine->name() == name) return engine;
  }
  return nullptr;
}

RegisteredEngine::RegisteredEngine(const Engine& engine) { List().insert(List().begin(), &engine); }
RegisteredEngine::~RegisteredEngine() { List().erase(List().begin()); }

}  // namespace ttr
