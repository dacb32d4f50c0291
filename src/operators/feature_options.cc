#include "src/operators/feature_options.h"

namespace ttr {
namespace {

rows::Map WordOf(FeatureMap map) {
  switch (map) {
    case FeatureMap::kNone: return rows::Map::kNone;
    case FeatureMap::kElu1: return rows::Map::kElu1;
    case FeatureMap::kRelu: return rows::Map::kRelu;
    case FeatureMap::kCosformer: return rows::Map::kCosformer;
    case FeatureMap::kDpfp: return rows::Map::kDpfp;
    case FeatureMap::kT2r: return rows::Map::kT2r;
    case FeatureMap::kHedgehogExp: return rows::Map::kHedgehogExp;
    case FeatureMap::kHedgehogSoftmax: return rows::Map::kHedgehogSoftmax;
    case FeatureMap::kTaylor2: return rows::Map::kTaylor2;
    case FeatureMap::kRebased: return rows::Map::kRebased;
    case FeatureMap::kRfa: return rows::Map::kRfa;
    case FeatureMap::kFavor: return rows::Map::kFavor;
    case FeatureMap::kDijiang: return rows::Map::kDijiang;
    case FeatureMap::kPower2: return rows::Map::kPower2;
  }
  return rows::Map::kNone;
}

}  // namespace

rows::FeatureOptions FeatureOptionsOf(const Function& function) {
  return {WordOf(function.features), function.nu, function.max_length};
}

}  // namespace ttr
