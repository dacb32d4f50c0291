/// All engines, in the order in which a recipe is offered to them.
#pragma once

#include <string_view>
#include <vector>

#include "src/adapters/engine.h"

namespace ttr {

// One a file of this folder.
const Engine& CurvatureEngine();
const Engine& FastWeightsEngine();
const Engine& ScanEngine();
const Engine& LeastSquaresEngine();
const Engine& RotatedLeastSquaresEngine();
const Engine& KernelSmootherEngine();
const Engine& KernelDictionaryEngine();
const Engine& WindowRegressionEngine();
const Engine& KernelRegressionEngine();
const Engine& LocalPolynomialEngine();
const Engine& NetworkEngine();
const Engine& DefinitionEngine();  // covers every recipe

/// The definition is the last.
const std::vector<const Engine*>& AllEngines();

/// The first engine that covers a recipe; it may have an obstacle.
const Engine& CoveringEngine(const Recipe& recipe);

/// The planned engine, or the definition where that takes no calls of these sizes.
const Engine& EngineFor(const Engine& planned, const Recipe& recipe, const Dims& dims);

/// The engine of a name; null where there is none.
const Engine* FindEngine(std::string_view name);

/// Offers recipes to one more engine, before all others, as long as this object lives. For tests:
/// not to be made or destroyed while layers are made.
class RegisteredEngine {
 public:
  explicit RegisteredEngine(const Engine& engine);
  ~RegisteredEngine();
  RegisteredEngine(const RegisteredEngine&) = delete;
  RegisteredEngine& operator=(const RegisteredEngine&) = delete;
};

}  // namespace ttr
